"""Attention of single tokens to paged keys and values, piece by piece of a list of work."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import let_next_begin, wait_alone
from jackfield.plugins.kernels.triton.encode_kernel import decode_pairs
from jackfield.plugins.kernels.triton.merge_kernel import merge_row
from jackfield.plugins.kernels.triton.work_list_kernel import ITEM

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
SHORT: tl.constexpr = tl.constexpr(8)
"""Tiles up to which a piece is as good as done: what comes next may begin meanwhile. Beside long
ones it would take room."""


@triton.jit
def queries_of(
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
def _item(item):
    """What there is beside the first field."""
    return (
        tl.load(item + 1),
        tl.load(item + 2),
        tl.load(item + 3),
        tl.load(item + 4),
        tl.load(item + 5),
    )


@triton.jit
def pages(table, position, end, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    """The block of a tile, or of each of its positions if blocks are smaller than tiles.

    Tiles begin where blocks do, or within a block that holds all of them.
    """
    if BLOCK_SIZE < TILE:
        entry = tl.arange(0, TILE)
        found = tl.load(
            table + (position // BLOCK_SIZE + entry // BLOCK_SIZE), entry < end - position, other=0
        )
    else:
        found = tl.load(table + position // BLOCK_SIZE, position < end, other=0)
    return found


@triton.jit
def _fixed(
    kv_head,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """What is the same in all tiles of where their positions' entries lie in a block."""
    place = tl.arange(0, TILE)
    if BLOCK_SIZE < TILE:
        place = place % BLOCK_SIZE
    head = kv_head * (BLOCK_SIZE * STRIDE)
    return (place * STRIDE)[:, None] + (head + tl.arange(0, WIDTH))[None, :]


@triton.jit
def _blocks(
    page, position, stride, STRIDE: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr
):
    """Where the blocks of a tile begin in the pool, or what it reads of its only block."""
    if BLOCK_SIZE < TILE:
        begin = (page.to(tl.int64) * stride)[:, None]
    else:
        begin = page.to(tl.int64) * stride + position % BLOCK_SIZE * STRIDE
    return begin


@triton.jit
def _positions(position, first, end, TILE: tl.constexpr, WINDOWED: tl.constexpr):
    """Which positions of a tile count."""
    positions = position + tl.arange(0, TILE)
    here = positions < end
    if WINDOWED:
        here = here & (positions >= first)
    return here


@triton.jit
def _shares(scores, here, largest, weights):
    """Exponentials of a tile's scores, what earlier ones are to be multiplied with, and the sums.

    Those are summed over the tile at the end: a sum is a meeting of all warps.
    """
    scores = tl.where(here[None, :], scores, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    shares = tl.exp2(scores - new_largest[:, None])
    kept = tl.exp2(largest - new_largest)
    return shares, kept, new_largest, weights * kept[:, None] + shares


@triton.jit
def _attend_plain(
    queries,
    row_scale,
    k,
    v,
    kv_head,
    table,
    begin,
    end,
    first,
    page,
    pool_stride,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
    EXACT: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """The largest scores, the sums of the exponentials, and the sums of the values by those.

    page: of the first tile.
    """
    entry = tl.arange(0, WIDTH)
    fixed = _fixed(kv_head, WIDTH, HEAD_DIM, BLOCK_SIZE, TILE)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    weights = tl.zeros([ROWS, TILE], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    for position in tl.range(begin, end, TILE, num_stages=STAGES):
        # Of the next tile already: its loads must not wait for this one.
        next_page = pages(table, position + TILE, end, BLOCK_SIZE, TILE)
        here = _positions(position, first, end, TILE, WINDOWED)
        readable = here[:, None]
        if HEAD_DIM < WIDTH:
            readable = readable & (entry < HEAD_DIM)[None, :]
        at = _blocks(page, position, pool_stride, HEAD_DIM, BLOCK_SIZE, TILE) + fixed
        keys = tl.load(k + at, readable, other=0)
        values = tl.load(v + at, readable, other=0)
        if EXACT:
            keys = keys.to(tl.float32)
            values = values.to(tl.float32)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * row_scale[:, None]
        shares, kept, largest, weights = _shares(scores, here, largest, weights)
        mixed = mixed * kept[:, None]
        mixed = tl.dot(shares.to(values.dtype), values, mixed, input_precision="ieee")
        page = next_page
    return largest, tl.sum(weights, 1), mixed


@triton.jit
def _attend_codes(
    queries,
    row_scale,
    k,
    v,
    kv_head,
    table,
    begin,
    end,
    first,
    page,
    pool_stride,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
    KIND: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    EXACT: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """As `_attend_plain`, of pairs of codes: even and odd entries are kept apart."""
    HALF: tl.constexpr = WIDTH // 2
    PAIRS: tl.constexpr = HEAD_DIM // 2
    entry = tl.arange(0, HALF)
    fixed = _fixed(kv_head, HALF, PAIRS, BLOCK_SIZE, TILE)
    even_queries, odd_queries = tl.split(tl.reshape(queries, [ROWS, HALF, 2]))
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    weights = tl.zeros([ROWS, TILE], tl.float32)
    even = tl.zeros([ROWS, HALF], tl.float32)
    odd = tl.zeros([ROWS, HALF], tl.float32)
    for position in tl.range(begin, end, TILE, num_stages=STAGES):
        next_page = pages(table, position + TILE, end, BLOCK_SIZE, TILE)
        here = _positions(position, first, end, TILE, WINDOWED)
        readable = here[:, None]
        if PAIRS < HALF:
            readable = readable & (entry < PAIRS)[None, :]
        at = _blocks(page, position, pool_stride, PAIRS, BLOCK_SIZE, TILE) + fixed
        keys = tl.load(k + at, readable, other=0)
        values = tl.load(v + at, readable, other=0)
        even_keys, odd_keys = decode_pairs(keys, KIND, ASSEMBLY)
        even_values, odd_values = decode_pairs(values, KIND, ASSEMBLY)
        if EXACT:
            even_keys, odd_keys = even_keys.to(tl.float32), odd_keys.to(tl.float32)
            even_values, odd_values = even_values.to(tl.float32), odd_values.to(tl.float32)
        scores = tl.dot(even_queries, tl.trans(even_keys), input_precision="ieee")
        scores = tl.dot(odd_queries, tl.trans(odd_keys), scores, input_precision="ieee")
        scores = scores * row_scale[:, None]
        shares, kept, largest, weights = _shares(scores, here, largest, weights)
        shares = shares.to(even_values.dtype)
        even = tl.dot(shares, even_values, even * kept[:, None], input_precision="ieee")
        odd = tl.dot(shares, odd_values, odd * kept[:, None], input_precision="ieee")
        page = next_page
    return largest, tl.sum(weights, 1), tl.interleave(even, odd)


@triton.jit
def attend(
    queries,
    row_scale,
    k,
    v,
    kv_head,
    table,
    begin,
    end,
    first,
    page,
    pool_stride,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
    KIND: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    EXACT: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    if KIND == 0:
        largest, weight, mixed = _attend_plain(
            queries, row_scale, k, v, kv_head, table, begin, end, first, page, pool_stride,
            HEAD_DIM, WIDTH, BLOCK_SIZE, ROWS, TILE, STAGES, EXACT, WINDOWED,
        )  # fmt: skip
    else:
        largest, weight, mixed = _attend_codes(
            queries, row_scale, k, v, kv_head, table, begin, end, first, page, pool_stride,
            HEAD_DIM, WIDTH, BLOCK_SIZE, ROWS, TILE, STAGES, KIND, ASSEMBLY, EXACT, WINDOWED,
        )  # fmt: skip
    return largest, weight, mixed


@triton.jit(do_not_specialize=["last_item"], do_not_specialize_on_alignment=["order"])
def decode_kernel(
    q,
    out,
    k,
    v,
    k_scales,
    v_scales,
    tables,
    items,
    last_item,
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
    ASSEMBLY: tl.constexpr,
    SCALED: tl.constexpr,
    EXACT: tl.constexpr,
    WINDOWED: tl.constexpr,
    GROUPED: tl.constexpr,
    LAST: tl.constexpr,
    EARLY: tl.constexpr,
    HEADS: tl.constexpr,
    PARTS: tl.constexpr,
):
    """A fixed number of programs walks the pairs of pieces and key/value heads.

    The list ends with an item of a negative row: its length would be one more thing to wait for.
    ROWS hold the query heads of one row's group, or of several members if GROUPED. LAST: whoever
    finishes a row's last piece merges them all; otherwise `merge_kernel` does it afterwards.
    """
    wait_alone(EARLY)
    lane = tl.arange(0, ROWS)
    entry = tl.arange(0, WIDTH)
    inside = (entry < HEAD_DIM)[None, :]
    pair = tl.program_id(0)
    item = items + pair // KV_HEADS * ITEM
    place = tl.load(item)
    while place >= 0:
        begin, end, first, partial, number = _item(item)
        if LAST and end - begin <= SHORT * TILE:
            let_next_begin(EARLY)
        following = pair + tl.num_programs(0)
        next_item = items + tl.minimum(following // KV_HEADS, last_item) * ITEM
        # Already here: what comes next must not wait for this pair. The cache then has all of it.
        next_place = tl.load(next_item)
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
        page = pages(table, begin, end, BLOCK_SIZE, TILE)
        queries, factor = queries_of(q, row, head, mask, q_stride, HEAD_DIM, WIDTH, KIND, EXACT)
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
                        partials, sums, out + place.to(tl.int64) * out_stride, tl.load(item + 6),
                        number, kv_head, KV_HEADS, GROUP, HEAD_DIM, WIDTH, HEADS, PARTS,
                    )  # fmt: skip
        else:
            target = row.to(tl.int64)[:, None] * out_stride + head[:, None] * HEAD_DIM
            tl.store(out + target + entry[None, :], mixed.to(out.dtype.element_ty), known)
        pair, item, place = following, next_item, next_place
