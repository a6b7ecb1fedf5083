"""Attention of single tokens to paged keys and values, by equal shares of all of them."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.decode_kernel import LOG2_E, attend, pages, queries_of
from jackfield.plugins.kernels.triton.early_kernel import wait_alone
from jackfield.plugins.kernels.triton.shares_kernel import FIELDS, span


@triton.jit(
    do_not_specialize=["rows", "window"], do_not_specialize_on_alignment=["lens"]
)
def decode_shares_kernel(
    q,
    out,
    k,
    v,
    k_scales,
    v_scales,
    tables,
    lens,
    shares,
    partials,
    sums,
    rows,
    window,
    q_stride,
    out_stride,
    pool_stride,
    tables_stride,
    scale,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    ALIGN: tl.constexpr,
    STAGES: tl.constexpr,
    KIND: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    SCALED: tl.constexpr,
    EXACT: tl.constexpr,
    WINDOWED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program a share. It walks pairs of rows and key/value heads; the first and the last one
    may be others' too, and what it finds of these goes to its two partial results: the second one
    if it has the beginning of the pair, else the first."""
    wait_alone(EARLY)
    program = tl.program_id(0)
    share = shares + program * FIELDS
    row = tl.load(share)
    kv_head = tl.load(share + 1)
    tile = tl.load(share + 2)
    left = tl.load(share + 3)
    length = tl.load(lens + row, row < rows, other=0)
    lane = tl.arange(0, ROWS)
    entry = tl.arange(0, WIDTH)
    mask = lane < GROUP
    known = mask[:, None] & (entry < HEAD_DIM)[None, :]
    while (left > 0) & (row < rows):
        next_row = row + (kv_head + 1) // KV_HEADS
        # Already here: the next pair must not wait for it.
        next_length = tl.load(lens + next_row, next_row < rows, other=0)
        start, first, tiles = span(length, window, TILE, ALIGN, WINDOWED)
        taken = tl.minimum(tiles - tile, left)
        begin = start + tile * TILE
        end = tl.minimum(begin + taken * TILE, length)
        head = kv_head * GROUP + lane % GROUP
        table = tables + row.to(tl.int64) * tables_stride
        page = pages(table, begin, end, BLOCK_SIZE, TILE)
        queries, factor = queries_of(
            q, row + tl.zeros_like(lane), head, mask, q_stride, HEAD_DIM, WIDTH, KIND, EXACT
        )
        row_scale = factor * (scale * LOG2_E)
        out_scale = 1.0
        if SCALED:
            row_scale *= tl.load(k_scales + kv_head)
            out_scale = tl.load(v_scales + kv_head)
        largest, weight, mixed = attend(
            queries, row_scale, k, v, kv_head, table, begin, end, first, page, pool_stride,
            HEAD_DIM, WIDTH, BLOCK_SIZE, ROWS, TILE, STAGES, KIND, ASSEMBLY, EXACT, WINDOWED,
        )  # fmt: skip
        mixed = mixed * (out_scale / tl.where(weight > 0, weight, 1.0))[:, None]
        if taken < tiles:
            place = (2 * program + (tile == 0).to(tl.int32)) * GROUP + lane
            tl.store(sums + place, largest + tl.log2(weight), mask)
            tl.store(partials + place[:, None] * HEAD_DIM + entry[None, :], mixed, known)
        else:
            target = out + row.to(tl.int64) * out_stride + head[:, None] * HEAD_DIM
            tl.store(target + entry[None, :], mixed.to(out.dtype.element_ty), known)
        # If the pair is not finished, nothing is left.
        left -= taken + 1
        tile = 0
        kv_head = (kv_head + 1) % KV_HEADS
        row, length = next_row, next_length
