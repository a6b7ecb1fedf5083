"""Attention of single tokens to paged keys and values, piece by piece of a list of work."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.encode import decode
from jackfield.plugins.kernels.triton.merge_kernel import merge_row
from jackfield.plugins.kernels.triton.work_list_kernel import ITEM

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _queries(
    q,
    row,
    head,
    mask,
    q_stride,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    KIND: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Queries in the type of the products, and what the scores are to be multiplied with.

    Codes become float16, where bfloat16 queries might not fit: those are divided by a power of 2.
    """
    entry = tl.arange(0, WIDTH)
    where = row.to(tl.int64)[:, None] * q_stride + head[:, None] * HEAD_DIM + entry[None, :]
    queries = tl.load(q + where, mask[:, None] & (entry < HEAD_DIM)[None, :], other=0.0)
    factor = tl.full(row.shape, 1.0, tl.float32)
    if EXACT:
        queries = queries.to(tl.float32)
    elif KIND != 0 and q.dtype.element_ty == tl.bfloat16:
        wide = queries.to(tl.float32)
        exponent = tl.max(tl.abs(wide), 1).to(tl.int32, bitcast=True) & 0x7F800000
        factor = tl.where(exponent > 0, exponent.to(tl.float32, bitcast=True), 1.0)
        queries = (wide / factor[:, None]).to(tl.float16)
    return queries, factor


@triton.jit
def _item(items, index):
    item = items + index * ITEM
    return (
        tl.load(item),
        tl.load(item + 1),
        tl.load(item + 2),
        tl.load(item + 3),
        tl.load(item + 4),
        tl.load(item + 5),
        tl.load(item + 6),
    )


@triton.jit
def _pages(table, position, end, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    """The block of a tile, or of each of its positions if blocks are smaller than tiles."""
    if BLOCK_SIZE < TILE:
        position += tl.arange(0, TILE)
    return tl.load(table + position // BLOCK_SIZE, position < end, other=0)


@triton.jit
def _offsets(
    page,
    position,
    stride,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Where the positions of a tile begin in the pool, for its first head."""
    if BLOCK_SIZE < TILE:
        place = (position + tl.arange(0, TILE)) % BLOCK_SIZE
    else:
        place = position % BLOCK_SIZE + tl.arange(0, TILE)
    return page.to(tl.int64) * stride + place * HEAD_DIM


@triton.jit
def decode_kernel(
    q,
    out,
    k,
    v,
    k_scales,
    v_scales,
    tables,
    items,
    counts,
    partials,
    sums,
    counters,
    order,
    shared_partials,
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
    STAGES: tl.constexpr,
    KIND: tl.constexpr,
    NATIVE: tl.constexpr,
    SCALED: tl.constexpr,
    EXACT: tl.constexpr,
    WINDOWED: tl.constexpr,
    GROUPED: tl.constexpr,
    LAST: tl.constexpr,
    HEADS: tl.constexpr,
    PARTS: tl.constexpr,
):
    """A fixed number of programs walks the pairs of pieces and key/value heads.

    ROWS hold the query heads of one row's group, or of several members if GROUPED. LAST: whoever
    finishes a row's last piece merges them all; otherwise `merge_kernel` does it afterwards.
    """
    lane = tl.arange(0, ROWS)
    entry = tl.arange(0, WIDTH)
    inside = (entry < HEAD_DIM)[None, :]
    total = tl.load(counts + GROUPED) * KV_HEADS
    # Of the next pair already, and of the first one before it is known whether there is one.
    fields = _item(items, tl.program_id(0) // KV_HEADS)
    for pair in range(tl.program_id(0), total, tl.num_programs(0)):
        place, begin, end, first, partial, number, start_partial = fields
        fields = _item(items, tl.minimum(pair + tl.num_programs(0), total - 1) // KV_HEADS)
        kv_head = pair % KV_HEADS
        head = kv_head * GROUP + lane % GROUP
        if GROUPED:
            member = lane // GROUP
            mask = member < number
            row = tl.load(order + place + member, mask, other=0)
            at = partial + tl.load(shared_partials + place + member, mask, other=0)
            table = tables + tl.load(order + place).to(tl.int64) * tables_stride
        else:
            mask = lane < GROUP
            row = place + tl.zeros_like(lane)
            at = partial + tl.zeros_like(lane)
            table = tables + place.to(tl.int64) * tables_stride
        page = _pages(table, begin, end, BLOCK_SIZE, TILE)
        queries, factor = _queries(q, row, head, mask, q_stride, HEAD_DIM, WIDTH, KIND, EXACT)
        row_scale = factor * (scale * LOG2_E)
        out_scale = 1.0
        if SCALED:
            row_scale *= tl.load(k_scales + kv_head)
            out_scale = tl.load(v_scales + kv_head)
        head_offset = kv_head * (BLOCK_SIZE * HEAD_DIM)
        largest = tl.full([ROWS], float("-inf"), tl.float32)
        weights = tl.zeros([ROWS, TILE], tl.float32)
        mixed = tl.zeros([ROWS, WIDTH], tl.float32)
        for position in tl.range(begin, end, TILE, num_stages=STAGES):
            # Of the next tile already: its loads must not wait for this one.
            next_page = _pages(table, position + TILE, end, BLOCK_SIZE, TILE)
            positions = position + tl.arange(0, TILE)
            here = positions < end
            if WINDOWED:
                here = here & (positions >= first)
            readable = here[:, None] & inside
            place_in = _offsets(page, position, pool_stride, HEAD_DIM, BLOCK_SIZE, TILE)
            at_entry = (place_in + head_offset)[:, None] + entry[None, :]
            keys = tl.load(k + at_entry, readable, other=0)
            values = tl.load(v + at_entry, readable, other=0)
            keys = decode(keys, KIND, NATIVE)
            values = decode(values, KIND, NATIVE)
            if EXACT:
                keys = keys.to(tl.float32)
                values = values.to(tl.float32)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * row_scale[:, None]
            scores = tl.where(here[None, :], scores, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, 1))
            shares = tl.exp2(scores - new_largest[:, None])
            kept = tl.exp2(largest - new_largest)
            # Summed over the tile at the end: a sum is a meeting of all warps.
            weights = weights * kept[:, None] + shares
            mixed = mixed * kept[:, None]
            mixed = tl.dot(shares.to(values.dtype), values, mixed, input_precision="ieee")
            largest = new_largest
            page = next_page
        weight = tl.sum(weights, 1)
        mixed = mixed * (out_scale / tl.where(weight > 0, weight, 1.0))[:, None]
        known = mask[:, None] & inside
        if GROUPED or number > 1:
            where = at.to(tl.int64) * (KV_HEADS * GROUP) + head
            tl.store(sums + where, largest + tl.log2(weight), mask)
            tl.store(partials + where[:, None] * HEAD_DIM + entry[None, :], mixed, known)
            if LAST:
                # All threads' results must be out before this program says so.
                tl.debug_barrier()
                counter = counters + place * KV_HEADS + kv_head
                done = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
                if done == number - 1:
                    tl.store(counter, 0)
                    merge_row(
                        partials, sums, out + place.to(tl.int64) * out_stride, start_partial,
                        number, kv_head, KV_HEADS, GROUP, HEAD_DIM, WIDTH, HEADS, PARTS,
                    )  # fmt: skip
        else:
            target = row.to(tl.int64)[:, None] * out_stride + head[:, None] * HEAD_DIM
            tl.store(out + target + entry[None, :], mixed.to(out.dtype.element_ty), known)
