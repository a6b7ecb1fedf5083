"""Log-probabilities of tokens, from the model's own logits before any edit.

Shape suffixes: R rows, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from jackfield.core.api import LOGPROB_FLOOR
from jackfield.core.engine.steps import TokenScore


def score(logits_RV: Tensor, tokens: Sequence[int], tops: Sequence[int]) -> list[TokenScore]:
    """One score per row; tops: how many of the likeliest tokens to list for each row.

    Minus infinity and what is no number become `LOGPROB_FLOOR`. rank 1 is the likeliest.
    """
    logprobs_RV = torch.log_softmax(logits_RV.float(), dim=-1)
    logprobs_RV = logprobs_RV.nan_to_num_(nan=LOGPROB_FLOOR).clamp_(min=LOGPROB_FLOOR)
    ids_R1 = torch.tensor(tokens, device=logits_RV.device).unsqueeze(1)
    chosen_R1 = logprobs_RV.gather(1, ids_R1)
    ranks = ((logprobs_RV > chosen_R1).sum(dim=1) + 1).tolist()
    values, indices = logprobs_RV.topk(max(*tops, 1), dim=-1)
    chosen, top_values, top_ids = chosen_R1.squeeze(1).tolist(), values.tolist(), indices.tolist()
    return [
        TokenScore(
            token,
            chosen[row],
            ranks[row],
            list(zip(top_ids[row][:top], top_values[row][:top], strict=True)),
        )
        for row, (token, top) in enumerate(zip(tokens, tops, strict=True))
    ]
