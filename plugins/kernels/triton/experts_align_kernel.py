"""Sorts a step's assignments, one per token and expert of it, by expert, and cuts them into tiles.

All on the device: nobody waits for what was chosen. Assignments of an expert stay in their order.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous

FIELDS: tl.constexpr = tl.constexpr(3)
"""int32 fields of a tile: its expert, or -1 for one that is not needed; its first row, its end."""


@triton.jit
def _ids(ids, start, assignments, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    """Of a block of assignments, and -1 for those of nobody."""
    at = start + tl.arange(0, BLOCK)
    found = tl.load(ids + at, at < assignments, other=-1)
    return at, tl.where((found >= 0) & (found < EXPERTS), found, -1).to(tl.int32)


@triton.jit
def _numbers(ids, assignments, EXPERTS: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """`[PADDED]`: assignments of each expert."""
    number = tl.zeros([PADDED], tl.int32)
    for start in tl.range(0, assignments, BLOCK):
        _at, found = _ids(ids, start, assignments, EXPERTS, BLOCK)
        number += tl.histogram(found, PADDED, mask=found >= 0)
    return number


@triton.jit
def _write_tile(tiles, tile, expert, first, end, mask):
    tl.store(tiles + tile * FIELDS, expert, mask)
    tl.store(tiles + tile * FIELDS + 1, first, mask)
    tl.store(tiles + tile * FIELDS + 2, end, mask)


@triton.jit(do_not_specialize=["assignments", "most"])
def align_kernel(
    ids,
    token,
    place,
    tiles,
    ends,
    counts,
    assignments,
    most,
    TOP: tl.constexpr,
    EXPERTS: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    COUNTED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program per expert; each looks at all ids.

    token: of each row, 0 behind the last one that is anybody's. place: the row of each assignment,
    -1 = nobody's. tiles: `most` of up to ROWS rows of one expert. ends: behind each expert's rows.
    counts: what each expert got is added to it if COUNTED. TOP: experts of a token; PADDED: a power
    of two that is not less than EXPERTS; BLOCK: ids that are looked at at once.
    """
    expert = tl.program_id(0)
    wait_for_previous(EARLY)
    number = _numbers(ids, assignments, EXPERTS, PADDED, BLOCK)
    each = tl.arange(0, PADDED)
    needed = tl.cdiv(number, ROWS)
    begin = tl.sum(tl.where(each < expert, number, 0), 0)
    own = tl.sum(tl.where(each == expert, number, 0), 0)
    first_tile = tl.sum(tl.where(each < expert, needed, 0), 0)
    own_tiles = tl.cdiv(own, ROWS)
    end = begin + own
    tl.store(ends + expert, end)
    if COUNTED:
        # Nobody else adds to this one.
        tl.store(counts + expert, tl.load(counts + expert) + own)
    for start in tl.range(0, own_tiles, PADDED):
        tile = start + each
        first = begin + tile * ROWS
        last = tl.minimum(first + ROWS, end)
        _write_tile(tiles, first_tile + tile, expert, first, last, tile < own_tiles)
    if own > 0:
        passed = begin
        for start in tl.range(0, assignments, BLOCK):
            at, found = _ids(ids, start, assignments, EXPERTS, BLOCK)
            mine = (found == expert).to(tl.int32)
            row = passed + tl.cumsum(mine, 0) - 1
            tl.store(token + row, at // TOP, mine > 0)
            tl.store(place + at, row, mine > 0)
            passed += tl.sum(mine, 0)
    if expert == EXPERTS - 1:
        _fill_rest(ids, token, place, tiles, end, first_tile + own_tiles, assignments, most,
                   EXPERTS, PADDED, BLOCK)  # fmt: skip


@triton.jit
def _fill_rest(
    ids,
    token,
    place,
    tiles,
    end,
    tiles_there,
    assignments,
    most,
    EXPERTS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What no expert writes: tiles that are not needed, and assignments that are nobody's."""
    for start in tl.range(tiles_there, most, PADDED):
        tile = start + tl.arange(0, PADDED)
        nothing = tl.zeros_like(tile)
        _write_tile(tiles, tile, nothing - 1, nothing, nothing, tile < most)
    if end < assignments:
        for start in tl.range(0, assignments, BLOCK):
            at, found = _ids(ids, start, assignments, EXPERTS, BLOCK)
            inside = at < assignments
            tl.store(place + at, found, inside & (found < 0))
            tl.store(token + at, tl.zeros_like(at), inside & (at >= end))
