"""Root mean square norm of rows."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous


@triton.jit
def root_mean_square(x, width, eps):
    """1 / the root of the mean square of each row of a float32 tile whose padding is 0."""
    return tl.rsqrt(tl.sum(x * x, 1) / width + eps)[:, None]


@triton.jit(do_not_specialize=["rows"])
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    rows,
    outer_stride,
    inner_stride,
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
    where = row // INNER * outer_stride + row % INNER * inner_stride
    weight = tl.load(weight_ptr + column, column < WIDTH, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    x = tl.load(x_ptr + where + column, mask, other=0.0).to(tl.float32)
    out = x * root_mean_square(x, WIDTH, eps) * weight
    tl.store(out_ptr + row * WIDTH + column, out.to(out_ptr.dtype.element_ty), mask)
