"""Cuts the decodes of a step into pieces of about equal work, on the device, in one program."""

import triton
import triton.language as tl

ITEM: tl.constexpr = tl.constexpr(8)
"""int32 fields of one piece: row, first position, end, first visible position, where its partial
result goes, how many partial results the row has, and where they begin. In pieces of common
beginnings: the place in the order, positions as above, which piece it is, and the members. Behind
the last piece the first field is -1."""
CHOICES: tl.constexpr = tl.constexpr(16)
FILL: tl.constexpr = tl.constexpr(1024)
"""Ends of the list that are written at once."""


@triton.jit
def _longest(choice):
    """Tiles of the longest piece: 1, 2, 3, 4, 6, 8, 12, ... 128, and all."""
    tiles = ((2 + (choice & 1)) << (choice >> 1)) >> 1
    return tl.where(choice == CHOICES - 1, 1 << 24, tiles)


@triton.jit
def _own(
    place,
    rows,
    lens,
    order,
    shared,
    window,
    TILE: tl.constexpr,
    ALIGN: tl.constexpr,
    GROUPED: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """Row, first position, first visible one, end and tiles of what each row reads for itself."""
    row = place
    begin = tl.zeros_like(place)
    if GROUPED:
        row = tl.load(order + place, place < rows, other=0)
        begin = tl.load(shared + place, place < rows, other=0)
    end = tl.load(lens + row, place < rows, other=0)
    first = begin
    if WINDOWED:
        first = tl.maximum(end - window, 0)
        begin = first // ALIGN * ALIGN
    return row, begin, first, end, tl.cdiv(tl.maximum(end - begin, 0), TILE)


@triton.jit
def _pieces(tiles, longest):
    return (tiles + longest - 1) // longest


@triton.jit
def _choose(
    pieces,
    partials,
    tiles,
    most,
    whole,
    capacity,
    processors,
    overhead,
    cut,
    merge,
    HEADS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Tiles of the longest piece that lets all be done soonest, by a rough model.

    By choice: pieces, partial results. most: tiles of the longest row. whole: pieces if none is
    cut. What a piece costs beside its positions is `overhead`; to cut at all `cut`, and `merge` per
    partial result of the row that has most, in positions.
    """
    choice = tl.arange(0, CHOICES)
    waves = tl.cdiv(pieces * HEADS, processors)
    longest = _longest(choice)
    mean = tiles.to(tl.float32) / tl.maximum(pieces, 1).to(tl.float32)
    cost = (waves.to(tl.float32) + 0.5) * (mean * TILE + overhead)
    # The longest piece may well be the last one to begin.
    cost += (tl.minimum(longest, most).to(tl.float32) - mean) * TILE
    merged = cut + _pieces(most, longest) * merge
    cost += tl.where(pieces > whole, merged, 0).to(tl.float32)
    cost = tl.where((partials <= capacity) | (choice == CHOICES - 1), cost, float("inf"))
    best = tl.argmin(cost, 0)
    return tl.sum(tl.where(choice == best, longest, 0), 0)


@triton.jit
def _put(
    items,
    at,
    count,
    tiles,
    a,
    begin,
    first,
    end,
    partial,
    step: tl.constexpr,
    number,
    start,
    TILE: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Each row's pieces side by side, cut where tiles end, none much shorter than another."""
    length = tl.cdiv(tiles, tl.maximum(count, 1)) * TILE
    for part in range(0, tl.max(count, 0), PARTS):
        piece = part + tl.arange(0, PARTS)[None, :]
        mask = piece < count[:, None]
        item = items + (at[:, None] + piece) * ITEM
        own_begin = begin[:, None] + piece * length[:, None]
        own_end = tl.minimum(own_begin + length[:, None], end[:, None])
        tl.store(item, tl.broadcast_to(a[:, None], mask.shape), mask)
        tl.store(item + 1, own_begin, mask)
        tl.store(item + 2, own_end, mask)
        tl.store(item + 3, tl.broadcast_to(first[:, None], mask.shape), mask)
        tl.store(item + 4, partial[:, None] + piece * step, mask)
        tl.store(item + 5, tl.broadcast_to(number[:, None], mask.shape), mask)
        tl.store(item + 6, tl.broadcast_to(start[:, None], mask.shape), mask)


@triton.jit
def _close(items, number, capacity):
    """Marks what lies behind the last item."""
    for start in range(number, capacity + 1, FILL):
        item = start + tl.arange(0, FILL)
        tl.store(items + item * ITEM, tl.full([FILL], -1, tl.int32), item <= capacity)


@triton.jit
def _totals(
    lens, order, rank, shared, rows, window,
    TILE: tl.constexpr, ALIGN: tl.constexpr, GROUP_TILE: tl.constexpr, MEMBERS: tl.constexpr,
    BLOCK: tl.constexpr, GROUPED: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """Over all rows, what a choice depends on. By choice: pieces of rows, and of common beginnings,
    and their partial results. Then tiles of all rows, and most of one; the same of common
    beginnings; and how many of these there are."""
    longest_C = _longest(tl.arange(0, CHOICES))[None, :]
    pieces_C = tl.zeros([CHOICES], tl.int32)
    group_pieces_C = tl.zeros([CHOICES], tl.int32)
    group_partials_C = tl.zeros([CHOICES], tl.int32)
    all_tiles = 0
    most = 0
    all_group_tiles = 0
    most_shared = 0
    leaders = 0
    for start in range(0, rows, BLOCK):
        place = start + tl.arange(0, BLOCK)
        here = place < rows
        _row, _begin, _first, _end, tiles = _own(
            place, rows, lens, order, shared, window, TILE, ALIGN, GROUPED, WINDOWED
        )
        counted = tl.maximum(_pieces(tiles[:, None], longest_C), here[:, None].to(tl.int32))
        pieces_C += tl.sum(counted, 0)
        all_tiles += tl.sum(tiles, 0)
        most = tl.maximum(most, tl.max(tiles, 0))
        if GROUPED:
            common = tl.cdiv(tl.load(shared + place, here, other=0), GROUP_TILE)
            leads = (tl.load(rank + place, here, other=0) % MEMBERS == 0) & (common > 0)
            group_counted = _pieces(common[:, None], longest_C)
            group_partials_C += tl.sum(group_counted, 0)
            group_pieces_C += tl.sum(tl.where(leads[:, None], group_counted, 0), 0)
            all_group_tiles += tl.sum(tl.where(leads, common, 0), 0)
            most_shared = tl.maximum(most_shared, tl.max(common, 0))
            leaders += tl.sum(leads.to(tl.int32), 0)
    return (
        pieces_C, group_pieces_C, group_partials_C,
        all_tiles, most, all_group_tiles, most_shared, leaders,
    )  # fmt: skip


# Where these lie nobody promises, and they are read entry by entry: one variant does.
@triton.jit(
    do_not_specialize=["rows", "capacity", "window", "processors", "overhead", "cut", "merge"],
    do_not_specialize_on_alignment=["lens", "order", "rank", "size", "shared"],
)
def work_list_kernel(
    lens,
    order,
    rank,
    size,
    shared,
    items,
    group_items,
    first_partials,
    num_partials,
    shared_partials,
    counters,
    rows,
    capacity,
    window,
    processors,
    overhead,
    cut,
    merge,
    HEADS: tl.constexpr,
    TILE: tl.constexpr,
    ALIGN: tl.constexpr,
    GROUP_TILE: tl.constexpr,
    MEMBERS: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    GROUPED: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """By row: where its partial results begin, and how many there are; by place in the order: where
    those of its common beginning begin. counters are set to 0. Every row has a piece, even one of
    length 0. items and group_items have room for one more than `capacity`."""
    (
        pieces_C, group_pieces_C, group_partials_C,
        all_tiles, most, all_group_tiles, most_shared, leaders,
    ) = _totals(
        lens, order, rank, shared, rows, window,
        TILE, ALIGN, GROUP_TILE, MEMBERS, BLOCK, GROUPED, WINDOWED,
    )  # fmt: skip
    longest = _choose(
        pieces_C, pieces_C, all_tiles, most, rows, capacity,
        processors, overhead, cut, merge, HEADS, TILE,
    )  # fmt: skip
    group_longest = longest
    if GROUPED:
        group_longest = _choose(
            group_pieces_C, group_partials_C, all_group_tiles, most_shared, leaders, capacity,
            processors, overhead, 0, merge, HEADS, GROUP_TILE,
        )  # fmt: skip
    num_items = 0
    num_group_items = 0
    all_partials = 0
    for start in range(0, rows, BLOCK):
        place = start + tl.arange(0, BLOCK)
        here = place < rows
        row, begin, first, end, tiles = _own(
            place, rows, lens, order, shared, window, TILE, ALIGN, GROUPED, WINDOWED
        )
        count = tl.maximum(_pieces(tiles, longest), here.to(tl.int32))
        at = num_items + tl.cumsum(count, 0) - count
        num_items += tl.sum(count, 0)
        number = count
        start_partial = at
        if GROUPED:
            shared_end = tl.load(shared + place, here, other=0)
            common = tl.cdiv(shared_end, GROUP_TILE)
            in_group = tl.load(rank + place, here, other=0)
            members = tl.minimum(tl.load(size + place, here, other=1) - in_group, MEMBERS)
            pieces = _pieces(common, group_longest)
            number = count + pieces
            start_partial = all_partials + tl.cumsum(number, 0) - number
            all_partials += tl.sum(number, 0)
            tl.store(shared_partials + place, start_partial + count, here)
            group_count = tl.where(in_group % MEMBERS == 0, pieces, 0)
            group_at = num_group_items + tl.cumsum(group_count, 0) - group_count
            num_group_items += tl.sum(group_count, 0)
            zero = tl.zeros_like(place)
            _put(
                group_items, group_at, group_count, common, place, zero, zero, shared_end,
                zero, 1, members, zero, GROUP_TILE, PARTS,
            )  # fmt: skip
        _put(
            items, at, count, tiles, row, begin, first, end,
            start_partial, 1, number, start_partial, TILE, PARTS,
        )  # fmt: skip
        tl.store(first_partials + row, start_partial, here)
        tl.store(num_partials + row, number, here)
        for head in range(HEADS):
            tl.store(counters + row * HEADS + head, tl.zeros_like(row), here)
    _close(items, num_items, capacity)
    if GROUPED:
        _close(group_items, num_group_items, capacity)
