"""The gate of a feed-forward layer."""

import torch
from torch import Tensor

from jackfield.plugins.kernels.cpu.compiled import CompiledOperation
from jackfield.plugins.kernels.cpu.library import dense_rows


class CpuSiluMul(CompiledOperation):
    """`silu(gate) * up`, rounded once."""

    name = "jackfield_silu_mul"
    letters = "pnnnpi"

    def __call__(self, gate_up_T2F: Tensor) -> Tensor:
        gate_up_T2F, strides = dense_rows(gate_up_T2F)
        rows, double_width = gate_up_T2F.shape
        width = double_width // 2
        out_TF = gate_up_T2F.new_empty((rows, width))
        self._functions[gate_up_T2F.dtype](
            gate_up_T2F.data_ptr(),
            strides[0],
            rows,
            width,
            out_TF.data_ptr(),
            torch.get_num_threads(),
        )
        return out_TF
