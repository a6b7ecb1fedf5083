"""Log-probabilities of tokens, from the model's own logits before any edit.

Shape suffixes: R rows, V vocabulary, K likeliest tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import LOGPROB_FLOOR
from jackfield.core.engine.steps import TokenScore


class Scores(NamedTuple):
    """Scores of some rows, still on the device; `read` waits for them.

    tops: how many of the likeliest tokens to list for each row.
    """

    tokens_R: Tensor
    logprobs_R: Tensor
    ranks_R: Tensor
    top_logprobs_RK: Tensor
    top_ids_RK: Tensor
    tops: Sequence[int]

    def read(self) -> list[TokenScore]:
        """One score per row; rank 1 is the likeliest."""
        columns = (column.tolist() for column in self[:5])
        return [
            TokenScore(token, logprob, rank, list(zip(ids[:top], logprobs[:top], strict=True)))
            for token, logprob, rank, logprobs, ids, top in zip(*columns, self.tops, strict=True)
        ]


def score(logits_RV: Tensor, tokens_R: Tensor, tops: Sequence[int]) -> Scores:
    """Minus infinity and what is no number become `LOGPROB_FLOOR`."""
    logprobs_RV = torch.log_softmax(logits_RV.float(), dim=-1)
    logprobs_RV = logprobs_RV.nan_to_num_(nan=LOGPROB_FLOOR).clamp_(min=LOGPROB_FLOOR)
    chosen_R1 = logprobs_RV.gather(1, tokens_R.unsqueeze(1))
    ranks_R = (logprobs_RV > chosen_R1).sum(dim=1) + 1
    values, indices = logprobs_RV.topk(max(*tops, 1), dim=-1)
    return Scores(tokens_R, chosen_R1.squeeze(1), ranks_R, values, indices, tops)
