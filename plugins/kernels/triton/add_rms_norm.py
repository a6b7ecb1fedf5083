"""Residual sum, then root mean square norm."""

import triton
import triton.language as tl
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.early import early, wait_for_previous
from jackfield.plugins.kernels.triton.launch import power_of_two, row_config, rows_of
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.rms_norm import root_mean_square
from jackfield.plugins.kernels.triton.support import TritonConfig


@triton.jit(do_not_specialize=["rows"])
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    rows,
    x_outer_stride,
    x_inner_stride,
    residual_outer_stride,
    residual_inner_stride,
    eps,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (column < WIDTH)
    outer, inner = row // INNER, row % INNER
    x_where = outer * x_outer_stride + inner * x_inner_stride + column
    residual_where = outer * residual_outer_stride + inner * residual_inner_stride + column
    weight = tl.load(weight_ptr + column, column < WIDTH, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    x = tl.load(x_ptr + x_where, mask, other=0.0).to(tl.float32)
    before = tl.load(residual_ptr + residual_where, mask, other=0.0).to(tl.float32)
    # The norm is that of the sum as it is kept.
    kept = (before + x).to(residual_ptr.dtype.element_ty)
    tl.store(residual_ptr + residual_where, kept, mask)
    total = kept.to(tl.float32)
    out = total * root_mean_square(total, WIDTH, eps) * weight
    tl.store(out_ptr + row * WIDTH + column, out.to(out_ptr.dtype.element_ty), mask)


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
