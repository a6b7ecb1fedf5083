"""Products of tiles of rows, each of one expert.

Shape suffixes beside those of the contract: A assignments in the order of their experts.
"""

import triton
from torch import Tensor

from jackfield.plugins.kernels.triton.attention_step import exact
from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.experts_align import Aligned, align, sum_up
from jackfield.plugins.kernels.triton.experts_tile_kernel import (
    down_tile_kernel,
    gate_up_tile_kernel,
)
from jackfield.plugins.kernels.triton.experts_work import ExpertWork


def multiply_tiles(work: ExpertWork, name: str, configs: Configs) -> Tensor:
    """name: of the class in the table. Both products have tiles of as many rows."""
    dtype, device = work.x_TD.dtype, work.x_TD.device
    first = configs.find(f"gate_up_{name}", dtype, device)
    second = configs.find(f"down_{name}", dtype, device)
    aligned = align(work, first["ROWS"], configs)
    hidden_AF = gate_up_tiles(work, aligned, first)
    made_AD = down_tiles(work, aligned, hidden_AF, second)
    return sum_up(made_AD, aligned.place_A, work, configs)


def gate_up_tiles(
    work: ExpertWork, aligned: Aligned, config: Config, into_AF: Tensor | None = None
) -> Tensor:
    """`silu(gate) * up` of each assignment, in the order of their experts. into: where it goes."""
    hidden_AF = into_AF
    if hidden_AF is None:
        hidden_AF = work.x_TD.new_empty(work.assignments, work.width)
    groups = triton.cdiv(work.width, config["OUTPUTS"])
    gate_up_tile_kernel[(groups * aligned.most,)](
        work.x_TD,
        work.gate_up_E2FD,
        aligned.token_A,
        aligned.tiles,
        hidden_AF,
        aligned.most,
        groups,
        work.x_TD.stride(0),
        work.hidden,
        work.width,
        EVEN=work.hidden % config["BLOCK"] == 0,
        EXACT=exact(hidden_AF.dtype),
        STAGES=config["num_stages"],
        **config,
        **early(hidden_AF.device),
    )
    return hidden_AF


def down_tiles(
    work: ExpertWork,
    aligned: Aligned,
    hidden_AF: Tensor,
    config: Config,
    into_AD: Tensor | None = None,
) -> Tensor:
    """What each assignment's expert makes, in the same order."""
    made_AD = into_AD
    if made_AD is None:
        made_AD = hidden_AF.new_empty(work.assignments, work.hidden)
    groups = triton.cdiv(work.hidden, config["OUTPUTS"])
    down_tile_kernel[(groups * aligned.most,)](
        hidden_AF,
        work.down_EDF,
        aligned.tiles,
        made_AD,
        aligned.most,
        groups,
        work.width,
        work.hidden,
        EVEN=work.width % config["BLOCK"] == 0,
        EXACT=exact(made_AD.dtype),
        STAGES=config["num_stages"],
        **config,
        **early(made_AD.device),
    )
    return made_AD
