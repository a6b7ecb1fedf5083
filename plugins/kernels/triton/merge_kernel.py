"""Puts the partial results of a row together by the weights of their exponential sums."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous
from jackfield.plugins.kernels.triton.shares_kernel import FIELDS, span

LEAST: tl.constexpr = tl.constexpr(-3.0e38)
"""Below all sums of exponentials, as logarithms; but such that a difference is a number."""


@triton.jit
def _load(
    partials, sums, first, start, number, kv_head,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr,
    HEADS: tl.constexpr, PARTS: tl.constexpr, SHARES: tl.constexpr,
):  # fmt: skip
    """Two tuples: logarithms of sums, and means, of pieces from `start` on. Behind the last one
    there is nothing. Other programs have written these, maybe since this one began."""
    place = tl.arange(0, HEADS * WIDTH)
    head, entry = place // WIDTH, place % WIDTH
    known = (head < GROUP) & (entry < HEAD_DIM)
    logs, means = (), ()
    for after in tl.static_range(PARTS):
        part = start + after
        log = tl.full([HEADS * WIDTH], float("-inf"), tl.float32)
        mean = tl.zeros([HEADS * WIDTH], tl.float32)
        if part < number:
            if SHARES:
                at = (2 * (first + part) + (part == 0).to(tl.int32)).to(tl.int64) * GROUP + head
            else:
                at = (first + part).to(tl.int64) * (KV_HEADS * GROUP) + kv_head * GROUP + head
            log = tl.load(sums + at, known, other=float("-inf"), cache_modifier=".cg")
            mean = tl.load(partials + at * HEAD_DIM + entry, known, other=0.0, cache_modifier=".cg")
        logs += (log,)  # type: ignore[assignment]
        means += (mean,)  # type: ignore[assignment]
    return logs, means


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

    Entries of all heads lie side by side in one dimension, and pieces come one by one: a thread
    adds up what it has loaded, so nothing goes through shared memory.
    """
    largest = tl.full([HEADS * WIDTH], LEAST, tl.float32)
    weight = tl.zeros([HEADS * WIDTH], tl.float32)
    mixed = tl.zeros([HEADS * WIDTH], tl.float32)
    logs, means = _load(
        partials, sums, first, 0, number, kv_head,
        KV_HEADS, GROUP, HEAD_DIM, WIDTH, HEADS, PARTS, SHARES,
    )  # fmt: skip
    for start in range(0, number, PARTS):
        # Loads stand a round before what needs them: else the assembler moves each to its place,
        # and they wait in turn.
        next_logs, next_means = _load(
            partials, sums, first, start + PARTS, number, kv_head,
            KV_HEADS, GROUP, HEAD_DIM, WIDTH, HEADS, PARTS, SHARES,
        )  # fmt: skip
        for part in tl.static_range(PARTS):
            more = logs[part] - largest
            less = tl.exp2(-tl.abs(more))
            factor, kept = tl.where(more > 0, 1.0, less), tl.where(more > 0, less, 1.0)
            weight = weight * kept + factor
            mixed = mixed * kept + means[part] * factor
            largest = tl.maximum(largest, logs[part])
        logs, means = next_logs, next_means
    mixed = mixed / tl.where(weight > 0, weight, 1.0)
    place = tl.arange(0, HEADS * WIDTH)
    head, entry = place // WIDTH, place % WIDTH
    tl.store(
        out + (kv_head * GROUP + head) * HEAD_DIM + entry, mixed.to(out.dtype.element_ty),
        (head < GROUP) & (entry < HEAD_DIM),
    )  # fmt: skip


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


@triton.jit(do_not_specialize=["rows", "window"], do_not_specialize_on_alignment=["lens"])
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
