"""Puts the partial results of a row together by the weights of their exponential sums."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous
from jackfield.plugins.kernels.triton.shares_kernel import FIELDS, span


@triton.jit
def merge_row(
    partials,
    sums,
    out,
    first,
    number,
    kv_head,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    PARTS: tl.constexpr,
    SHARES: tl.constexpr = False,
):
    """The query heads of one key/value head. out: where the row's heads begin.

    partials `[partial, head, HEAD_DIM]` are means, sums `[partial, head]` the binary logarithms of
    what they were divided by. HEADS: GROUP as a power of two. PARTS: how many are read at once.
    SHARES: as `decode_shares_kernel` leaves them, of the heads of one group, from program `first`
    on.
    """
    part = tl.arange(0, PARTS)
    head = tl.arange(0, HEADS)
    entry = tl.arange(0, WIDTH)
    query_head = kv_head * GROUP + head
    known = (head < GROUP)[:, None] & (entry < HEAD_DIM)[None, :]
    largest = tl.full([HEADS], float("-inf"), tl.float32)
    weight = tl.zeros([HEADS], tl.float32)
    mixed = tl.zeros([HEADS, WIDTH], tl.float32)
    for start in range(0, number, PARTS):
        here = start + part < number
        if SHARES:
            after = start + part
            partial = 2 * (first + after) + (after == 0).to(tl.int32)
            at = partial.to(tl.int64)[:, None] * GROUP + head[None, :]
        else:
            partial = (first + start + part).to(tl.int64)
            at = partial[:, None] * (KV_HEADS * GROUP) + query_head[None, :]
        mask = here[:, None] & (head < GROUP)[None, :]
        # Other programs have written these, maybe since this one began.
        part_sums = tl.load(sums + at, mask, other=float("-inf"), cache_modifier=".cg")
        values = tl.load(
            partials + at[:, :, None] * HEAD_DIM + entry[None, None, :],
            mask[:, :, None] & (entry < HEAD_DIM)[None, None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        new_largest = tl.maximum(largest, tl.max(part_sums, 0))
        base = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        factor = tl.exp2(part_sums - base[None, :])
        kept = tl.exp2(largest - base)
        weight = weight * kept + tl.sum(factor, 0)
        mixed = mixed * kept[:, None] + tl.sum(values * factor[:, :, None], 0)
        largest = new_largest
    mixed = mixed / tl.where(weight > 0, weight, 1.0)[:, None]
    where = out + query_head[:, None] * HEAD_DIM + entry[None, :]
    tl.store(where, mixed.to(out.dtype.element_ty), known)


@triton.jit
def merge_kernel(
    partials,
    sums,
    out,
    first_partials,
    num_partials,
    out_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    PARTS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program per row and key/value head. Rows of one partial result are finished already."""
    wait_for_previous(EARLY)
    row = tl.program_id(0)
    number = tl.load(num_partials + row)
    first = tl.load(first_partials + row)
    if number > 1:
        merge_row(
            partials, sums, out + row.to(tl.int64) * out_stride, first, number, tl.program_id(1),
            KV_HEADS, GROUP, HEAD_DIM, WIDTH, HEADS, PARTS,
        )  # fmt: skip


@triton.jit(
    do_not_specialize=["rows", "window"], do_not_specialize_on_alignment=["lens"]
)
def merge_shares_kernel(
    partials,
    sums,
    out,
    lens,
    shares,
    rows,
    window,
    out_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    PARTS: tl.constexpr,
    TILE: tl.constexpr,
    ALIGN: tl.constexpr,
    WINDOWED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program per share: it merges the pair that begins in its share and ends in another."""
    wait_for_previous(EARLY)
    program = tl.program_id(0)
    share = shares + (program + 1) * FIELDS
    row = tl.load(share)
    kv_head = tl.load(share + 1)
    done = tl.load(share + 2)
    size = tl.load(share + 3)
    # What the next share begins in the middle of began here, unless it is longer than a share.
    if (row < rows) & (done > 0) & (done <= size):
        length = tl.load(lens + row)
        _begin, _first, tiles = span(length, window, TILE, ALIGN, WINDOWED)
        number = 1 + tl.cdiv(tiles - done, size)
        merge_row(
            partials, sums, out + row.to(tl.int64) * out_stride, program, number, kv_head,
            KV_HEADS, GROUP, HEAD_DIM, WIDTH, HEADS, PARTS, True,
        )  # fmt: skip
