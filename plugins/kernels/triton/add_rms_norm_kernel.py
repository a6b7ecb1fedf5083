"""Residual sum, then root mean square norm, of rows."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous
from jackfield.plugins.kernels.triton.rms_norm_kernel import root_mean_square


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
