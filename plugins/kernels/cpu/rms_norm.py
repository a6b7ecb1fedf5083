"""Root mean square norm."""

import torch
from torch import Tensor

from jackfield.plugins.kernels.cpu.compiled import CompiledOperation
from jackfield.plugins.kernels.cpu.library import dense_rows


class CpuRmsNorm(CompiledOperation):
    """Computed and scaled in float32, rounded once. Strided heads are read in place."""

    name = "jackfield_rms_norm"
    letters = "pnnnnnpfpi"

    def __call__(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if x.dim() > 3:
            return self(x.flatten(0, -3), weight, eps).view(x.shape)
        x, strides = dense_rows(x)
        shape, dtype = x.shape, x.dtype
        out = x.new_empty(shape)
        outer, outer_stride = (shape[0], strides[0]) if len(shape) == 3 else (1, 0)
        inner, inner_stride = (shape[-2], strides[-2]) if len(shape) > 1 else (1, 0)
        if weight.dtype is not dtype:
            weight = weight.to(dtype)
        self._functions[dtype](
            x.data_ptr(),
            outer,
            inner,
            shape[-1],
            outer_stride,
            inner_stride,
            weight.data_ptr(),
            eps,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out
