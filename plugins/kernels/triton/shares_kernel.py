"""Gives each program an equal share of all tiles of a step's decodes, on the device."""

import triton
import triton.language as tl

FIELDS: tl.constexpr = tl.constexpr(4)
"""int32 fields of a share: the row, the key/value head and the tile it begins with, and its size.
Tiles go by row, then by head. A pair of a row and a head costs one tile beside its own, so that
many short ones are no more work than few long ones. A row behind the last one: nothing is left."""


@triton.jit
def span(length, window, TILE: tl.constexpr, ALIGN: tl.constexpr, WINDOWED: tl.constexpr):
    """Where what a row reads begins, its first visible position, and tiles: at least one."""
    first = tl.zeros_like(length)
    begin = first
    if WINDOWED:
        first = tl.maximum(length - window, 0)
        begin = first // ALIGN * ALIGN
    return begin, first, tl.maximum(tl.cdiv(length - begin, TILE), 1)


@triton.jit
def _tiles(
    lens, row, rows, window, TILE: tl.constexpr, ALIGN: tl.constexpr, WINDOWED: tl.constexpr
):
    """Of each row, and 0 behind the last one."""
    length = tl.load(lens + row, row < rows, other=0)
    _begin, _first, tiles = span(length, window, TILE, ALIGN, WINDOWED)
    return tl.where(row < rows, tiles, 0)


@triton.jit(
    do_not_specialize=["rows", "programs", "window", "least"],
    do_not_specialize_on_alignment=["lens"],
)
def shares_kernel(
    lens,
    shares,
    rows,
    programs,
    window,
    least,
    HEADS: tl.constexpr,
    TILE: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
    PLACES: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """One share more than programs: the last one says that there is nothing left.

    least: tiles of a share at least; behind the last one that is needed shares are empty. BLOCK:
    rows that are looked at at once; PLACES: shares that one program of this kernel makes.
    """
    place = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    total = 0
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        tiles = _tiles(lens, row, rows, window, TILE, ALIGN, WINDOWED)
        total += tl.sum(tl.where(row < rows, tiles + 1, 0), 0) * HEADS
    size = tl.maximum(tl.cdiv(total, programs), least)
    at = place * size
    behind = tl.zeros_like(place)
    offset = tl.zeros_like(place)
    tiles_there = tl.zeros_like(place)
    passed = 0
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        tiles = _tiles(lens, row, rows, window, TILE, ALIGN, WINDOWED)
        cost = tl.where(row < rows, tiles + 1, 0) * HEADS
        end = passed + tl.cumsum(cost, 0)
        within = at[:, None] - (end - cost)[None, :]
        here = (within >= 0) & (within < cost[None, :])
        # At most one row is right for a share.
        behind += tl.sum(tl.where(here, row[None, :] + 1, 0), 1)
        offset += tl.sum(tl.where(here, within, 0), 1)
        tiles_there += tl.sum(tl.where(here, tiles[None, :], 0), 1)
        passed += tl.sum(cost, 0)
    head = offset // (tiles_there + 1)
    tile = offset % (tiles_there + 1)
    # What a pair costs beside its tiles is no tile: the share begins with the next pair.
    beside = (tile == tiles_there) & (behind > 0)
    head += beside.to(tl.int32)
    found = tl.where(behind > 0, behind - 1 + head // HEADS, rows)
    share = shares + place * FIELDS
    mask = place <= programs
    tl.store(share, found, mask)
    tl.store(share + 1, head % HEADS, mask)
    tl.store(share + 2, tl.where(beside, 0, tile), mask)
    tl.store(share + 3, size - beside.to(tl.int32), mask)
