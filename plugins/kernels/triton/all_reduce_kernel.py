"""The sum over ranks of tensors without gaps, cut into rows of `BLOCK` entries, in place."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous
from jackfield.plugins.kernels.triton.symmetric_kernel import (
    meet,
    row_of,
    slab_of,
    sum_share,
    total_of,
)


@triton.jit(do_not_specialize=["rank"])
def all_reduce_kernel(
    x_ptr,
    peers_ptr,
    calls_ptr,
    size,
    rank,
    RANKS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    LANES: tl.constexpr,
    SLAB: tl.constexpr,
    BLOCK: tl.constexpr,
    TWO: tl.constexpr,
    EARLY: tl.constexpr,
):
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    rows = tl.cdiv(size, BLOCK)
    # The next launch may begin, but it waits there until this one has ended.
    wait_for_previous(EARLY)
    number = tl.load(calls_ptr + program) + 2
    slab = slab_of(number, PROGRAMS, LANES, SLAB)
    own = row_of(peers_ptr, rank, slab, x_ptr)
    for row in range(program, rows, PROGRAMS):
        where = row * BLOCK + column
        x = tl.load(x_ptr + where, where < size)
        tl.store(own + row // PROGRAMS * BLOCK + column, x, where < size)
    if TWO:
        meet(peers_ptr, rank, number - 1, RANKS, LANES)
        sum_share(peers_ptr, rank, slab, rows, x_ptr, BLOCK, BLOCK, RANKS, PROGRAMS)
    meet(peers_ptr, rank, number, RANKS, LANES)
    for row in range(program, rows, PROGRAMS):
        where = row * BLOCK + column
        total = total_of(peers_ptr, slab, row, x_ptr, BLOCK, BLOCK, RANKS, PROGRAMS, TWO)
        tl.store(x_ptr + where, total, where < size)
    tl.store(calls_ptr + program, number)
