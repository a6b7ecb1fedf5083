"""Root mean square norm."""

import triton
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.launch import power_of_two, row_config, rows_of
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.rms_norm_kernel import rms_norm_kernel
from jackfield.plugins.kernels.triton.support import TritonConfig


class TritonRmsNorm(TritonOperation):
    """Computed and scaled in float32, rounded once. Strided heads are read in place."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = Configs("rms_norm")

    def __call__(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = x.new_empty(x.shape)
        x, outer, inner, outer_stride, inner_stride = rows_of(x)
        rows, width = outer * inner, x.shape[-1]
        config = row_config(self._configs, rows, width, x)
        if rows == 0:
            return out
        rms_norm_kernel[(triton.cdiv(rows, config["ROWS"]),)](
            x,
            weight,
            out,
            rows,
            outer_stride,
            inner_stride,
            float(eps),
            INNER=inner,
            WIDTH=width,
            BLOCK=power_of_two(width),
            **config,
            **early(out.device),
        )
        return out
