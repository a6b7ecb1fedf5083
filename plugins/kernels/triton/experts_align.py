"""Rows in the order of their experts, and back.

Shape suffixes beside those of the contract: A assignments, one per token and expert of it.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.experts_align_kernel import FIELDS, align_kernel
from jackfield.plugins.kernels.triton.experts_sum_kernel import sum_kernel
from jackfield.plugins.kernels.triton.experts_work import Assigned
from jackfield.plugins.kernels.triton.launch import power_of_two

FEW = 1024
"""Assignments that one look of a program takes in."""
FEWEST_EXPERTS = 32
"""Of a histogram."""


class Aligned(NamedTuple):
    """All int32, and as `align_kernel` has them. Of tiles there are as many as may be needed."""

    token_A: Tensor
    place_A: Tensor
    tiles: Tensor
    ends_E: Tensor

    @property
    def most(self) -> int:
        """Tiles that may be needed."""
        return self.tiles.shape[0]


def most_tiles(work: Assigned, rows: int) -> int:
    """However the tokens choose. An expert gets each of them once at most."""
    experts = min(work.experts, work.assignments)
    uneven = experts + (work.assignments - experts) // rows
    return min(experts * -(-work.tokens // rows), uneven)


def align(work: Assigned, rows: int, configs: Configs, *, clear: bool = False) -> Aligned:
    """Sort the assignments. clear: others than our kernels will read what is sorted, and launches
    of ours may be left out at start."""
    amount = "few" if work.assignments <= FEW else "many"
    config = configs.find(f"align_{amount}", work.x_TD.dtype, work.x_TD.device)
    aligned = _room(work, rows, clear)
    align_kernel[(work.experts,)](
        work.ids_TK,
        *aligned,
        aligned.ends_E if work.counts_E is None else work.counts_E,
        work.assignments,
        aligned.most,
        TOP=work.top,
        EXPERTS=work.experts,
        PADDED=max(power_of_two(work.experts), FEWEST_EXPERTS),
        ROWS=rows,
        COUNTED=work.counts_E is not None,
        **config,
        **early(work.x_TD.device),
    )
    return aligned


def _room(work: Assigned, rows: int, clear: bool) -> Aligned:
    make = torch.zeros if clear else torch.empty
    count, most = work.assignments, most_tiles(work, rows)
    shapes = ((count,), (count,), (most, FIELDS.value), (work.experts,))
    device = work.x_TD.device
    return Aligned(*(make(shape, dtype=torch.int32, device=device) for shape in shapes))


def sum_up(made_AD: Tensor, place_A: Tensor, work: Assigned, configs: Configs) -> Tensor:
    """The weighted sum of each token's rows."""
    out_TD = torch.empty_like(work.x_TD, memory_format=torch.contiguous_format)
    config = configs.find("sum", out_TD.dtype, out_TD.device)
    sum_kernel[(work.tokens, triton.cdiv(work.hidden, config["BLOCK"]))](
        made_AD,
        place_A,
        work.shares_TK,
        out_TD,
        WIDTH=work.hidden,
        TOP=work.top,
        **config,
        **early(out_TD.device),
    )
    return out_TD
