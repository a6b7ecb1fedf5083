"""Products of so many rows that plain matrices of all experts are worth making, some experts at a
time; also for what the kernels that read packed weights do not serve.

Shape suffixes beside those of the contract: A assignments in the order of their experts.
"""

import torch
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.experts_align import Aligned, sum_up
from jackfield.plugins.kernels.triton.experts_tiles import down_tiles, gate_up_tiles
from jackfield.plugins.kernels.triton.experts_work import ExpertWork
from jackfield.plugins.kernels.triton.quant_experts_rows import Rows, sorted_rows
from jackfield.plugins.kernels.triton.quant_experts_work import QuantWork
from jackfield.plugins.kernels.triton.quant_matmul import DENSE_ELEMENTS, dense
from jackfield.plugins.kernels.triton.quant_pack import SIDE


def multiply_dense(work: QuantWork, name: str, configs: Configs) -> Tensor:
    """configs: the table of plain experts; name: of a class in it."""
    dtype, device = work.x_TD.dtype, work.x_TD.device
    first = configs.find(f"gate_up_{name}", dtype, device)
    second = configs.find(f"down_{name}", dtype, device)
    rows = sorted_rows(work, first["ROWS"], configs)
    assert rows.aligned is not None, "rows of tiles are sorted"
    hidden_AF = rows.x.new_empty(work.assignments, work.width)
    made_AD = rows.x.new_empty(work.assignments, work.hidden)
    step = max(DENSE_ELEMENTS // (2 * work.packed.apart * SIDE * work.hidden), 1)
    for begin in range(0, work.experts, step):
        part = range(begin, min(begin + step, work.experts))
        plain, own = _plain(work, rows, part), _of(rows.aligned, part)
        gate_up_tiles(plain, own, first, hidden_AF)
        down_tiles(plain, own, hidden_AF, second, made_AD)
    return sum_up(made_AD, rows.place_A, work, configs)


def _plain(work: QuantWork, rows: Rows, part: range) -> ExpertWork:
    """The same call with plain weights of some experts."""
    packed, dtype, count = work.packed, work.x_TD.dtype, len(part)
    both, outputs = 2 * packed.apart * SIDE, packed.sides * SIDE
    gate_up = dense(packed.gate_up, part.start * both, part.stop * both, dtype)
    down = dense(packed.down, part.start * outputs, part.stop * outputs, dtype)
    gate_up_E2FD = gate_up.view(count, 2, both // 2, work.hidden)[:, :, : work.width]
    down_EDF = down.view(count, outputs, work.width)[:, : work.hidden]
    return ExpertWork(
        rows.x,
        work.ids_TK,
        work.shares_TK,
        None,
        gate_up_E2FD.reshape(count, 2 * work.width, work.hidden),
        down_EDF.contiguous(),
    )


def _of(aligned: Aligned, part: range) -> Aligned:
    """With the tiles of other experts as such that are not needed."""
    expert, *rest = aligned.tiles.unbind(1)
    others = (expert < part.start) | (expert >= part.stop)
    own = (expert - part.start).masked_fill_(others, -1)
    return aligned._replace(tiles=torch.stack((own, *rest), 1))
