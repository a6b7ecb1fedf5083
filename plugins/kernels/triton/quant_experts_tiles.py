"""Products of tiles of rows, each of one expert, with weights of few bits.

Shape suffixes beside those of the contract: A assignments in the order of their rows.
"""

from math import gcd
from typing import Any

import triton
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.experts_align import sum_up
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.quant_experts_kernel import (
    quant_down_kernel,
    quant_gate_up_kernel,
)
from jackfield.plugins.kernels.triton.quant_experts_rows import Rows, direct_rows, sorted_rows
from jackfield.plugins.kernels.triton.quant_experts_work import QuantWork
from jackfield.plugins.kernels.triton.quant_matmul import constants_of, tensors_of, tiles_of
from jackfield.plugins.kernels.triton.quant_pack import PackedQuant

DIRECT = 1
"""The class in the table of steps in which every assignment is a tile."""
HEIGHTS = (8, 32)
"""The fewest rows of a tile, and the most."""


def multiply_direct(work: QuantWork, configs: Configs, sums: Configs) -> Tensor:
    """Every assignment is a tile of one row. sums: the table of what experts of any kind share."""
    return _multiply(work, direct_rows(work), DIRECT, configs, sums)


def multiply_sorted(work: QuantWork, configs: Configs, sums: Configs) -> Tensor:
    """Assignments of an expert share its weights."""
    height = height_of(work.load)
    return _multiply(work, sorted_rows(work, height, sums), height, configs, sums)


def height_of(load: int) -> int:
    """Rows of a tile: twice as many as an expert gets if all get equally many."""
    return min(max(power_of_two(2 * load), HEIGHTS[0]), HEIGHTS[1])


def _multiply(work: QuantWork, rows: Rows, name: int, configs: Configs, sums: Configs) -> Tensor:
    dtype, device = work.x_TD.dtype, work.x_TD.device
    first = configs.find(f"gate_up_{work.bits}_{name}", dtype, device)
    second = configs.find(f"down_{work.bits}_{name}", dtype, device)
    height = max(name, HEIGHTS[0])
    hidden_AF = gate_up(work, rows, height, first)
    made_AD = down(work, rows, hidden_AF, height, second)
    return sum_up(made_AD, rows.place_A, work, sums)


def gate_up(work: QuantWork, rows: Rows, height: int, config: Config) -> Tensor:
    """`silu(gate) * up` of each assignment, in the order of the rows."""
    packed, part = work.packed, work.packed.gate_up
    constants = _constants(part, rows.x, height, config)
    hidden_AF = rows.x.new_empty(work.assignments, work.width)
    tiles_abreast = constants["TILES"] * constants["ABREAST"]
    assert tiles_abreast % 2 == 0, "half of them are of gate, half of up"
    groups = triton.cdiv(packed.apart * 2, tiles_abreast)
    token_A, tiles, count = _tiles(work, rows)
    quant_gate_up_kernel[(groups * count,)](
        rows.x,
        *tensors_of(part)[:3],
        work.ids_TK,
        token_A,
        tiles,
        rows.place_A,
        work.ids_TK if work.counts_E is None else work.counts_E,
        hidden_AF,
        count,
        groups,
        rows.x.stride(0),
        work.hidden,
        work.width,
        packed.apart,
        part.shape[0],
        part.blocks,
        TOP=rows.top,
        EXPERTS=work.experts,
        DIRECT=rows.aligned is None,
        COUNTED=rows.aligned is None and work.counts_E is not None,
        **constants,
        **early(hidden_AF.device),
    )
    return hidden_AF


def down(work: QuantWork, rows: Rows, hidden_AF: Tensor, height: int, config: Config) -> Tensor:
    """What each assignment's expert makes, in the same order."""
    packed, part = work.packed, work.packed.down
    constants = _constants(part, hidden_AF, height, config)
    made_AD = hidden_AF.new_empty(work.assignments, work.hidden)
    groups = triton.cdiv(packed.sides, constants["TILES"] * constants["ABREAST"])
    _, tiles, count = _tiles(work, rows)
    quant_down_kernel[(groups * count,)](
        hidden_AF,
        *tensors_of(part)[:3],
        work.ids_TK,
        tiles,
        made_AD,
        count,
        groups,
        work.width,
        work.hidden,
        packed.sides,
        part.shape[0],
        part.blocks,
        EXPERTS=work.experts,
        DIRECT=rows.aligned is None,
        **constants,
        **early(made_AD.device),
    )
    return made_AD


def _tiles(work: QuantWork, rows: Rows) -> tuple[Tensor, Tensor, int]:
    """Tokens of rows, tiles, and how many of those; what there is not is never read."""
    if rows.aligned is None:
        return rows.place_A, rows.place_A, work.assignments
    return rows.aligned.token_A, rows.aligned.tiles, rows.aligned.most


def _constants(part: PackedQuant, x: Tensor, height: int, config: Config) -> dict[str, Any]:
    step = config["PARTS"] * config["BLOCKS"] * part.inputs
    numbers = constants_of(x, part)
    del numbers["BIASED"]
    return {
        **config,
        **numbers,
        "SECTION": gcd(part.group, part.inputs),
        "EVEN": part.shape[1] % step == 0,
        "ROWS": height,
        "TILES": tiles_of(part.group, part.inputs, height, config),
        "ABREAST": config["num_warps"] // config["PARTS"],
    }
