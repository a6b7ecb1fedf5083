"""Attention of single tokens to paged latents: one key of all heads, whose first entries are its
value. Each program has an equal share of all of them."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.decode_kernel import LOG2_E, pages
from jackfield.plugins.kernels.triton.early_kernel import wait_alone
from jackfield.plugins.kernels.triton.encode_kernel import decode_pairs
from jackfield.plugins.kernels.triton.shares_kernel import FIELDS, span

MANY: tl.constexpr = tl.constexpr(64)
"""Rows of products from which on groups of four warps compute them on Hopper, and registers are
short: what is the same in all tiles is then computed anew."""


@triton.jit
def _queries(
    q,
    head,
    mask,
    head_stride,
    RANK: tl.constexpr,
    ROTATED: tl.constexpr,
    WIDTH: tl.constexpr,
    ROTATED_WIDTH: tl.constexpr,
    KIND: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Both parts of a row's queries in the type of the products, and what the scores are to be
    multiplied with, which is 1 but for codes: those become float16, where bfloat16 queries might
    not fit. They are divided by a power of 2."""
    entry = tl.arange(0, WIDTH)
    rotated_entry = tl.arange(0, ROTATED_WIDTH)
    begin = q + head.to(tl.int64)[:, None] * head_stride
    latent = tl.load(begin + entry[None, :], mask[:, None] & (entry < RANK)[None, :], other=0.0)
    rotated = tl.load(
        begin + RANK + rotated_entry[None, :],
        mask[:, None] & (rotated_entry < ROTATED)[None, :],
        other=0.0,
    )
    factor = tl.full(head.shape, 1.0, tl.float32)
    if EXACT:
        latent, rotated = latent.to(tl.float32), rotated.to(tl.float32)
    elif KIND != 0 and q.dtype.element_ty == tl.bfloat16:
        wide, wide_rotated = latent.to(tl.float32), rotated.to(tl.float32)
        largest = tl.maximum(tl.max(tl.abs(wide), 1), tl.max(tl.abs(wide_rotated), 1))
        exponent = largest.to(tl.int32, bitcast=True) & 0x7F800000
        factor = tl.where(exponent > 0, exponent.to(tl.float32, bitcast=True), 1.0)
        latent = (wide / factor[:, None]).to(tl.float16)
        rotated = (wide_rotated / factor[:, None]).to(tl.float16)
    return latent, rotated, factor


@triton.jit
def _places(
    page, position, stride, STRIDE: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr
):
    """Where the entries of each position of a tile begin in the pool."""
    place = tl.arange(0, TILE)
    if BLOCK_SIZE < TILE:
        begin = page.to(tl.int64) * stride + place % BLOCK_SIZE * STRIDE
    else:
        begin = page.to(tl.int64) * stride + position % BLOCK_SIZE * STRIDE + place * STRIDE
    return begin[:, None]


@triton.jit
def _read(latents, places, here, FIRST: tl.constexpr, ENTRIES: tl.constexpr, WIDTH: tl.constexpr):
    """So many entries of each position from the first one on, and zeros up to the width."""
    entry = tl.arange(0, WIDTH)
    known = here[:, None]
    if ENTRIES < WIDTH:
        known = known & (entry < ENTRIES)[None, :]
    return tl.load(latents + places + (FIRST + entry)[None, :], known, other=0)


@triton.jit
def _score(queries, keys, row_scale):
    """Of a part of the entries. Products that are added to each other would share a layout."""
    return tl.dot(queries, tl.trans(keys), input_precision="ieee") * row_scale[:, None]


@triton.jit
def _mix(shares, values, mixed):
    return tl.dot(shares.to(values.dtype), values, mixed, input_precision="ieee")


@triton.jit
def _share(scores, here, partly, largest, weights, SPREAD: tl.constexpr):
    """Exponentials of a tile's scores, what earlier ones are to be multiplied with, and the sums.

    partly: whether some positions are not here. SPREAD: sums are kept by position, and summed at
    the end: a sum is a meeting of all warps.
    """
    # A branch, not a mask alone: beyond it the compiler does not see the product that follows, for
    # whose sake it would have all warps compute all scores of 64 rows.
    if partly:
        scores = tl.where(here[None, :], scores, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    shares = tl.exp2(scores - new_largest[:, None])
    kept = tl.exp2(largest - new_largest)
    weights = weights * kept[:, None] + shares if SPREAD else weights * kept + tl.sum(shares, 1)
    return shares, kept, new_largest, weights


@triton.jit
def _total(weights, SPREAD: tl.constexpr):
    if SPREAD:
        weights = tl.sum(weights, 1)
    return weights


@triton.jit
def _attend_plain(
    queries,
    rotated_queries,
    row_scale,
    latents,
    table,
    begin,
    end,
    page,
    pool_stride,
    RANK: tl.constexpr,
    ROTATED: tl.constexpr,
    WIDTH: tl.constexpr,
    ROTATED_WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
    EXACT: tl.constexpr,
):
    """The largest scores, the sums of the exponentials, and the sums of the values by those.

    page: of the first tile.
    """
    SPREAD: tl.constexpr = ROWS < MANY
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    weights = tl.zeros([ROWS, TILE] if SPREAD else [ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    for position in tl.range(begin, end, TILE, num_stages=STAGES, disable_licm=not SPREAD):
        # Of the next tile already: its loads must not wait for this one.
        next_page = pages(table, position + TILE, end, BLOCK_SIZE, TILE)
        here = position + tl.arange(0, TILE) < end
        places = _places(page, position, pool_stride, RANK + ROTATED, BLOCK_SIZE, TILE)
        # Read once: as keys and as values they are the same tile in shared memory.
        stored = _read(latents, places, here, 0, RANK, WIDTH)
        rotated = _read(latents, places, here, RANK, ROTATED, ROTATED_WIDTH)
        if EXACT:
            stored, rotated = stored.to(tl.float32), rotated.to(tl.float32)
        scores = _score(queries, stored, row_scale) + _score(rotated_queries, rotated, row_scale)
        shares, kept, largest, weights = _share(
            scores, here, position + TILE > end, largest, weights, SPREAD
        )
        mixed = _mix(shares, stored, mixed * kept[:, None])
        page = next_page
    return largest, _total(weights, SPREAD), mixed


@triton.jit
def _attend_codes(
    queries,
    rotated_queries,
    row_scale,
    latents,
    table,
    begin,
    end,
    page,
    pool_stride,
    RANK: tl.constexpr,
    ROTATED: tl.constexpr,
    WIDTH: tl.constexpr,
    ROTATED_WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
    KIND: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    EXACT: tl.constexpr,
):
    """As `_attend_plain`, of pairs of codes: even and odd entries are kept apart."""
    HALF: tl.constexpr = WIDTH // 2
    ROTATED_HALF: tl.constexpr = ROTATED_WIDTH // 2
    PAIRS: tl.constexpr = RANK // 2
    ROTATED_PAIRS: tl.constexpr = ROTATED // 2
    even_queries, odd_queries = tl.split(tl.reshape(queries, [ROWS, HALF, 2]))
    even_turns, odd_turns = tl.split(tl.reshape(rotated_queries, [ROWS, ROTATED_HALF, 2]))
    SPREAD: tl.constexpr = ROWS < MANY
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    weights = tl.zeros([ROWS, TILE] if SPREAD else [ROWS], tl.float32)
    even = tl.zeros([ROWS, HALF], tl.float32)
    odd = tl.zeros([ROWS, HALF], tl.float32)
    for position in tl.range(begin, end, TILE, num_stages=STAGES, disable_licm=not SPREAD):
        next_page = pages(table, position + TILE, end, BLOCK_SIZE, TILE)
        here = position + tl.arange(0, TILE) < end
        places = _places(page, position, pool_stride, PAIRS + ROTATED_PAIRS, BLOCK_SIZE, TILE)
        stored = _read(latents, places, here, 0, PAIRS, HALF)
        rotated = _read(latents, places, here, PAIRS, ROTATED_PAIRS, ROTATED_HALF)
        even_stored, odd_stored = decode_pairs(stored, KIND, ASSEMBLY)
        even_rotated, odd_rotated = decode_pairs(rotated, KIND, ASSEMBLY)
        if EXACT:
            even_stored, odd_stored = even_stored.to(tl.float32), odd_stored.to(tl.float32)
            even_rotated, odd_rotated = even_rotated.to(tl.float32), odd_rotated.to(tl.float32)
        scores = _score(even_queries, even_stored, row_scale)
        scores += _score(odd_queries, odd_stored, row_scale)
        scores += _score(even_turns, even_rotated, row_scale)
        scores += _score(odd_turns, odd_rotated, row_scale)
        shares, kept, largest, weights = _share(
            scores, here, position + TILE > end, largest, weights, SPREAD
        )
        even = _mix(shares, even_stored, even * kept[:, None])
        odd = _mix(shares, odd_stored, odd * kept[:, None])
        page = next_page
    return largest, _total(weights, SPREAD), tl.interleave(even, odd)


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["lens"])
def latent_decode_kernel(
    q,
    out,
    latents,
    scales,
    tables,
    lens,
    shares,
    partials,
    sums,
    rows,
    q_stride,
    head_stride,
    out_stride,
    pool_stride,
    tables_stride,
    scale,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    RANK: tl.constexpr,
    ROTATED: tl.constexpr,
    WIDTH: tl.constexpr,
    ROTATED_WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
    KIND: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    SCALED: tl.constexpr,
    EXACT: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program a share. It walks pairs of rows and groups of heads; the first and the last one
    may be others' too, and what it finds of these goes to its two partial results: the second one
    if it has the beginning of the pair, else the first.
    """
    wait_alone(EARLY)
    program = tl.program_id(0)
    share = shares + program * FIELDS
    row = tl.load(share)
    group = tl.load(share + 1)
    tile = tl.load(share + 2)
    left = tl.load(share + 3)
    length = tl.load(lens + row, row < rows, other=0)
    lane = tl.arange(0, ROWS)
    entry = tl.arange(0, WIDTH)
    mask = lane < GROUP
    known = mask[:, None] & (entry < RANK)[None, :]
    while (left > 0) & (row < rows):
        next_row = row + (group + 1) // GROUPS
        # Already here: the next pair must not wait for it.
        next_length = tl.load(lens + next_row, next_row < rows, other=0)
        _begin, _first, tiles = span(length, 0, TILE, TILE, False)
        taken = tl.minimum(tiles - tile, left)
        begin = tile * TILE
        end = tl.minimum(begin + taken * TILE, length)
        table = tables + row.to(tl.int64) * tables_stride
        page = pages(table, begin, end, BLOCK_SIZE, TILE)
        queries, rotated_queries, factor = _queries(
            q + row.to(tl.int64) * q_stride, group * GROUP + lane, mask, head_stride,
            RANK, ROTATED, WIDTH, ROTATED_WIDTH, KIND, EXACT,
        )  # fmt: skip
        row_scale = factor * (scale * LOG2_E)
        out_scale = 1.0
        if SCALED:
            out_scale = tl.load(scales)
            row_scale *= out_scale
        if KIND == 0:
            largest, weight, mixed = _attend_plain(
                queries, rotated_queries, row_scale, latents, table, begin, end, page, pool_stride,
                RANK, ROTATED, WIDTH, ROTATED_WIDTH, BLOCK_SIZE, ROWS, TILE, STAGES,
                EXACT,
            )  # fmt: skip
        else:
            largest, weight, mixed = _attend_codes(
                queries, rotated_queries, row_scale, latents, table, begin, end, page, pool_stride,
                RANK, ROTATED, WIDTH, ROTATED_WIDTH, BLOCK_SIZE, ROWS, TILE, STAGES,
                KIND, ASSEMBLY, EXACT,
            )  # fmt: skip
        mixed = mixed * (out_scale / tl.where(weight > 0, weight, 1.0))[:, None]
        within = lane[:, None] * RANK + entry[None, :]
        if taken < tiles:
            place = (2 * program + (tile == 0).to(tl.int32)) * GROUP
            tl.store(sums + place + lane, largest + tl.log2(weight), mask)
            tl.store(partials + place.to(tl.int64) * RANK + within, mixed, known)
        else:
            target = out + row.to(tl.int64) * out_stride + group * (GROUP * RANK)
            tl.store(target + within, mixed.to(out.dtype.element_ty), known)
        # If the pair is not finished, nothing is left.
        left -= taken + 1
        tile = 0
        group = (group + 1) % GROUPS
        row, length = next_row, next_length
