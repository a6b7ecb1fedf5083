"""The sum of rows over ranks, then the residual sum, then its root mean square norm."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous
from jackfield.plugins.kernels.triton.rms_norm_kernel import root_mean_square
from jackfield.plugins.kernels.triton.symmetric_kernel import (
    meet,
    row_of,
    slab_of,
    sum_share,
    total_of,
)


@triton.jit(do_not_specialize=["rows", "rank"])
def all_reduce_add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    peers_ptr,
    calls_ptr,
    rows,
    rank,
    x_stride,
    residual_stride,
    eps,
    RANKS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    LANES: tl.constexpr,
    SLAB: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    TWO: tl.constexpr,
    EARLY: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < WIDTH
    weight = tl.load(weight_ptr + column, mask, other=0.0).to(tl.float32)
    # The next launch may begin, but it waits there until this one has ended.
    wait_for_previous(EARLY)
    number = tl.load(calls_ptr + program) + 2
    slab = slab_of(number, PROGRAMS, LANES, SLAB)
    own = row_of(peers_ptr, rank, slab, x_ptr)
    for row in range(program, rows, PROGRAMS):
        x = tl.load(x_ptr + row * x_stride + column, mask)
        tl.store(own + row // PROGRAMS * WIDTH + column, x, mask)
    if TWO:
        meet(peers_ptr, rank, number - 1, RANKS, LANES)
        sum_share(peers_ptr, rank, slab, rows, x_ptr, WIDTH, BLOCK, RANKS, PROGRAMS)
    meet(peers_ptr, rank, number, RANKS, LANES)
    for row in range(program, rows, PROGRAMS):
        total = total_of(peers_ptr, slab, row, x_ptr, WIDTH, BLOCK, RANKS, PROGRAMS, TWO)
        where = row * residual_stride + column
        before = tl.load(residual_ptr + where, mask, other=0.0).to(tl.float32)
        # The norm is that of the sum as it is kept.
        kept = (before + total.to(tl.float32)).to(residual_ptr.dtype.element_ty)
        tl.store(residual_ptr + where, kept, mask)
        normed = kept.to(tl.float32)[None, :]
        normed = normed * root_mean_square(normed, WIDTH, eps) * weight[None, :]
        out = tl.reshape(normed, (BLOCK,)).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row * WIDTH + column, out, mask)
    tl.store(calls_ptr + program, number)
