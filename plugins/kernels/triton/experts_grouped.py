"""Products of many rows, which torch's grouped ones make at full speed.

Shape suffixes beside those of the contract: A assignments in the order of their experts.
"""

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.experts_align import align, sum_up
from jackfield.plugins.kernels.triton.experts_work import ExpertWork
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul

ALIGNED = 16
"""Bytes: rows of grouped products begin at multiples."""
CAPABLE = (9, 10)
"""GPUs that have them. On others torch multiplies group by group, and waits for their ends."""
ROWS = 128
"""Of tiles that nobody asks for."""


def have_groups(work: ExpertWork) -> bool:
    """Whether torch has grouped products for these weights."""
    down_EDF = work.down_EDF
    if down_EDF.device.type != "cuda" or down_EDF.dtype is not torch.bfloat16:
        return False
    rows = (size * down_EDF.itemsize for size in down_EDF.shape[1:])
    capable = torch.cuda.get_device_capability(down_EDF.device)[0] in CAPABLE
    return capable and all(size % ALIGNED == 0 for size in rows)


def multiply_groups(work: ExpertWork, gate: TritonSiluMul, configs: Configs) -> Tensor:
    """What lies behind the last group means nothing, and is read by nobody."""
    aligned = align(work, ROWS, configs, clear=True)
    x_AD = work.x_TD.index_select(0, aligned.token_A)
    hidden_AF = gate(grouped_mm(x_AD, work.gate_up_E2FD.mT, offs=aligned.ends_E))
    made_AD = grouped_mm(hidden_AF, work.down_EDF.mT, offs=aligned.ends_E)
    return sum_up(made_AD, aligned.place_A, work, configs)
