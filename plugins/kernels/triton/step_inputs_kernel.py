"""A step's inputs from little news.

A program has every so many chunks of the blocks and of the tokens of one slice. What is new of a
block table is read from the news alone, so no program waits for what another one writes.
"""

import triton
import triton.language as tl

# Where the news lie within one transfer changes from step to step; nothing must be compiled anew.
NEWS = [
    "seats_ptr",
    "starts_ptr",
    "lengths_ptr",
    "query_start_ptr",
    "new_first_ptr",
    "new_begin_ptr",
    "ids_begin_ptr",
    "new_blocks_ptr",
    "news_ids_ptr",
]
OUTPUTS = ["ids_ptr", "positions_ptr", "slots_ptr", "lens_ptr", "block_tables_ptr"]


@triton.jit
def _blocks_of(column, mask, table_ptr, new_blocks_ptr, new_first, new_begin, new_end):
    """Entries of a slice's block table as they are after the step's news."""
    new = (column >= new_first) & (column < new_first + new_end - new_begin)
    fresh = tl.load(new_blocks_ptr + new_begin + column - new_first, mask & new, other=0)
    known = tl.load(table_ptr + column, mask & ~new, other=0)
    return tl.where(new, fresh, known)


@triton.jit
def _keep_news(
    table_ptr, new_blocks_ptr, new_first, new_begin, new_end, begin, step, BLOCK: tl.constexpr
):
    start = new_begin + begin
    while start < new_end:
        entry = start + tl.arange(0, BLOCK)
        mask = entry < new_end
        blocks = tl.load(new_blocks_ptr + entry, mask)
        tl.store(table_ptr + new_first + entry - new_begin, blocks, mask)
        start += step


@triton.jit
def _order(
    to_ptr,
    count,
    table_ptr,
    new_blocks_ptr,
    new_first,
    new_begin,
    new_end,
    begin,
    step,
    BLOCK: tl.constexpr,
):
    """Copy the first `count` entries of a block table to the step's."""
    start = begin
    while start < count:
        column = start + tl.arange(0, BLOCK)
        mask = column < count
        blocks = _blocks_of(column, mask, table_ptr, new_blocks_ptr, new_first, new_begin, new_end)
        tl.store(to_ptr + column, blocks, mask)
        start += step


@triton.jit
def _ids(offset, mask, ids_begin, news_ids_ptr, last_token_ptr):
    fed = ids_begin < 0
    known = tl.load(news_ids_ptr + ids_begin + offset, mask & ~fed, other=0).to(tl.int64)
    last = tl.load(last_token_ptr + offset * 0, mask & fed, other=0)
    last = tl.where(last < 0, -1 - last, last)  # the mark of a logit that was no number
    return tl.where(fed, last, known)


@triton.jit(
    do_not_specialize=["table_stride", "block_table_stride"],
    do_not_specialize_on_alignment=[*NEWS, *OUTPUTS, "last_token_ptr", "tables_ptr"],
)
def step_inputs_kernel(
    seats_ptr,
    starts_ptr,
    lengths_ptr,
    query_start_ptr,
    new_first_ptr,
    new_begin_ptr,
    ids_begin_ptr,
    new_blocks_ptr,
    news_ids_ptr,
    last_token_ptr,
    tables_ptr,
    table_stride,
    ids_ptr,
    positions_ptr,
    slots_ptr,
    lens_ptr,
    block_tables_ptr,
    block_table_stride,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    part = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * BLOCK
    step = tl.num_programs(1) * BLOCK
    seat = tl.load(seats_ptr + part).to(tl.int64)
    start = tl.load(starts_ptr + part)
    length = tl.load(lengths_ptr + part)
    new_first = tl.load(new_first_ptr + part)
    new_begin = tl.load(new_begin_ptr + part)
    new_end = tl.load(new_begin_ptr + part + 1)
    table_ptr = tables_ptr + seat * table_stride
    _keep_news(table_ptr, new_blocks_ptr, new_first, new_begin, new_end, begin, step, BLOCK)

    real = length > 0
    reach = tl.where(real, start + length, 0)
    if begin == 0:
        tl.store(lens_ptr + part, reach)
    _order(
        block_tables_ptr + part * block_table_stride,
        (reach + BLOCK_SIZE - 1) // BLOCK_SIZE,
        table_ptr,
        new_blocks_ptr,
        new_first,
        new_begin,
        new_end,
        begin,
        step,
        BLOCK,
    )

    ids_begin = tl.load(ids_begin_ptr + part)
    first = tl.load(query_start_ptr + part)
    tokens = tl.load(query_start_ptr + part + 1) - first
    while begin < tokens:
        offset = begin + tl.arange(0, BLOCK)
        mask = offset < tokens
        known = mask & real
        token = _ids(offset, known, ids_begin, news_ids_ptr, last_token_ptr + seat)
        position = tl.where(real, start + offset, 0)
        block = _blocks_of(
            position // BLOCK_SIZE, known, table_ptr, new_blocks_ptr, new_first, new_begin, new_end
        )
        slot = block.to(tl.int64) * BLOCK_SIZE + position % BLOCK_SIZE
        tl.store(ids_ptr + first + offset, token, mask)
        tl.store(positions_ptr + first + offset, position.to(tl.int64), mask)
        tl.store(slots_ptr + first + offset, tl.where(real, slot, -1), mask)
        begin += step
