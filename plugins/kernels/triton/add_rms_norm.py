"""Residual sum, then root mean square norm."""

import triton
from torch import Tensor

from jackfield.plugins.kernels.triton.add_rms_norm_kernel import add_rms_norm_kernel
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.launch import power_of_two, row_config, rows_of
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.support import TritonConfig


class TritonAddRmsNorm(TritonOperation):
    """The sum is kept in the place of the residual, rounded, and its norm is rounded once."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = Configs("add_rms_norm")

    def __call__(
        self, x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        out = x_TD.new_empty(x_TD.shape)
        x, kept = rows_of(x_TD), rows_of(residual_TD)
        rows, width = x.outer * x.inner, out.shape[-1]
        config = row_config(self._configs, rows, width, out)
        if rows:
            add_rms_norm_kernel[(triton.cdiv(rows, config["ROWS"]),)](
                x.tensor,
                kept.tensor,
                weight_D,
                out,
                rows,
                x.outer_stride,
                x.inner_stride,
                kept.outer_stride,
                kept.inner_stride,
                float(eps),
                INNER=x.inner,
                WIDTH=width,
                BLOCK=power_of_two(width),
                **config,
                **early(out.device),
            )
        return out, kept.tensor.view(residual_TD.shape)
