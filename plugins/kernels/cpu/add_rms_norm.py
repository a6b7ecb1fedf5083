"""Residual sum, then root mean square norm, in one pass."""

import torch
from torch import Tensor

from jackfield.plugins.kernels.cpu.compiled import CompiledOperation
from jackfield.plugins.kernels.cpu.library import dense_rows


class CpuAddRmsNorm(CompiledOperation):
    """The sum is kept in the place of the residual."""

    name = "jackfield_add_rms_norm"
    letters = "pnpnnnpfpi"

    def __call__(
        self, x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        x_TD, x_strides = dense_rows(x_TD)
        residual_TD, residual_strides = dense_rows(residual_TD)
        rows, width = residual_TD.shape
        dtype = residual_TD.dtype
        out_TD = residual_TD.new_empty((rows, width))
        if weight_D.dtype is not dtype:
            weight_D = weight_D.to(dtype)
        self._functions[dtype](
            x_TD.data_ptr(),
            x_strides[0],
            residual_TD.data_ptr(),
            residual_strides[0],
            rows,
            width,
            weight_D.data_ptr(),
            eps,
            out_TD.data_ptr(),
            torch.get_num_threads(),
        )
        return out_TD, residual_TD
