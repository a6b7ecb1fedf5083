"""Puts the partial results of latent attention together: few of its long heads by each program."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous
from jackfield.plugins.kernels.triton.merge_kernel import merge_row
from jackfield.plugins.kernels.triton.shares_kernel import FIELDS, span


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["lens"])
def latent_merge_kernel(
    partials,
    sums,
    out,
    lens,
    shares,
    rows,
    out_stride,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    RANK: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    PARTS: tl.constexpr,
    TILE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program per share and HEADS heads, which divide the heads of a group: it merges what
    begins in its share and ends in another."""
    wait_for_previous(EARLY)
    program = tl.program_id(0)
    share = shares + (program + 1) * FIELDS
    row = tl.load(share)
    group = tl.load(share + 1)
    done = tl.load(share + 2)
    size = tl.load(share + 3)
    # What the next share begins in the middle of began here, unless it is longer than a share.
    if (row < rows) & (done > 0) & (done <= size):
        length = tl.load(lens + row)
        _begin, _first, tiles = span(length, 0, TILE, TILE, False)
        number = 1 + tl.cdiv(tiles - done, size)
        head = tl.program_id(1) * HEADS
        target = out + row.to(tl.int64) * out_stride + head * RANK
        merge_row(
            partials + head * RANK, sums + head, target, program, number, group,
            GROUPS, GROUP, RANK, WIDTH, HEADS, PARTS, True,
        )  # fmt: skip
