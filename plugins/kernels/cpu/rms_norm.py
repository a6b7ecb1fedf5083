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
        shape = x.shape
        out = torch.empty(shape, dtype=x.dtype)
        inner = shape[-2] if len(shape) > 1 else 1
        self._functions[x.dtype](
            x.data_ptr(),
            shape[0] if len(shape) == 3 else 1,
            inner,
            shape[-1],
            strides[0] if len(shape) == 3 else 0,
            strides[-2] if len(shape) > 1 else 0,
            weight.to(x.dtype).data_ptr(),
            eps,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out
