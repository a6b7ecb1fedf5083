"""Prompts of latent attention: one key/value head for all queries, whose values are the first
entries of its keys.

Shape suffixes beside those of the contract: Q tokens of one slice, L positions that are read.
"""

import torch
from torch import Tensor

from jackfield.plugins.kernels.torch_ops.attention_step import ROOM, Prefill

LATENT = "latent"
"""The one tensor of a layer, keys and values in one."""


def latent_prefill(
    q_TNH: Tensor, keys_LH: Tensor, scale: float, prefill: Prefill, out_TNH: Tensor
) -> None:
    """Causal attention of one slice, in pieces: the scores of all its tokens need much room."""
    # Products of half types would round the scores before the softmax.
    exact = torch.promote_types(q_TNH.dtype, torch.float32)
    keys_LH = keys_LH.to(exact)
    values_LH = keys_LH[:, : out_TNH.shape[-1]]
    past = len(keys_LH) - (prefill.end - prefill.begin)
    piece = max(ROOM // (q_TNH.shape[1] * len(keys_LH) * exact.itemsize), 1)
    for begin in range(prefill.begin, prefill.end, piece):
        end = min(begin + piece, prefill.end)
        reach = past + end - prefill.begin
        q_NQH = q_TNH[begin:end].transpose(0, 1).to(exact)
        scores_NQL = torch.matmul(q_NQH, keys_LH[:reach].t()).mul_(scale)
        seen_QL = _seen(prefill, begin - prefill.begin, end - begin, reach, scores_NQL.device)
        probabilities_NQL = scores_NQL.masked_fill_(~seen_QL, float("-inf")).softmax(-1)
        out_NQH = torch.matmul(probabilities_NQL, values_LH[:reach])
        out_TNH[begin:end].copy_(out_NQH.transpose(0, 1))


def _seen(prefill: Prefill, first: int, count: int, reach: int, device: torch.device) -> Tensor:
    if prefill.seen_QL is not None:
        return prefill.seen_QL[first : first + count, :reach]
    position_L = torch.arange(reach, device=device)
    return position_L <= position_L[-count:].unsqueeze(1)
