"""Which rows of x the kernels read, and the tiles that they belong to.

Shape suffixes beside those of the contract: A assignments, one per token and expert of it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.experts_align import Aligned, align
from jackfield.plugins.kernels.triton.quant_experts_work import QuantWork


class Rows(NamedTuple):
    """x: `[rows, D]`. top: assignments of a row, if each assignment is a tile; aligned: None where
    that is so. place_A: as `align_kernel` has it; not filled yet without tiles."""

    x: Tensor
    top: int
    aligned: Aligned | None
    place_A: Tensor


def direct_rows(work: QuantWork) -> Rows:
    """Of so few tokens that nothing is sorted."""
    place_A = torch.empty(work.assignments, dtype=torch.int32, device=work.x_TD.device)
    order_ED = work.packed.order_ED
    if order_ED is None:
        return Rows(work.x_TD, work.top, None, place_A)
    x_AD = work.x_TD.repeat_interleave(work.top, 0)
    expert_A = work.ids_TK.flatten().clamp(0, work.experts - 1)
    return Rows(x_AD.gather(1, order_ED[expert_A]), 1, None, place_A)


def sorted_rows(work: QuantWork, height: int, configs: Configs) -> Rows:
    """In tiles of so many rows. Where experts have their inputs in orders of their own, each
    assignment gets a row in that of its expert."""
    order_ED = work.packed.order_ED
    aligned = align(work, height, configs, clear=order_ED is not None)
    if order_ED is None:
        return Rows(work.x_TD, work.top, aligned, aligned.place_A)
    row_A = torch.arange(work.assignments, dtype=torch.int32, device=work.x_TD.device)
    expert_A = torch.searchsorted(aligned.ends_E, row_A, right=True).clamp_(max=work.experts - 1)
    x_AD = work.x_TD.index_select(0, aligned.token_A).gather(1, order_ED[expert_A])
    return Rows(x_AD, 1, aligned._replace(token_A=row_A), aligned.place_A)
