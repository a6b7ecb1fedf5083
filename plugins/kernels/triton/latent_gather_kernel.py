"""Stored vectors of latent attention, side by side, in the model's type."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.encode_kernel import decode
from jackfield.plugins.kernels.triton.prefill_kernel import FIELDS


@triton.jit
def _copy_entries(
    from_L, to_L, scale, known_L,
    FIRST: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr,
    KIND: tl.constexpr, NATIVE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """from, to: where each position's vector begins."""
    entry = tl.arange(0, BLOCK)[None, :]
    known = known_L[:, None] & (entry < COUNT)
    tile = tl.load(from_L[:, None] + FIRST + entry, mask=known, other=0)
    tile = decode(tile, KIND, NATIVE)
    if SCALED:
        tile = tile.to(tl.float32) * scale
    tl.store(to_L[:, None] + FIRST + entry, tile.to(to_L.dtype.element_ty), mask=known)


@triton.jit(do_not_specialize=["table_stride"])
def latent_gather_kernel(
    pool,
    room,
    tables,
    ranges,
    scales,
    table_stride,
    pool_stride_block,
    RANK: tl.constexpr,
    ROTATED: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_W: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_L: tl.constexpr,
    KIND: tl.constexpr,
    NATIVE: tl.constexpr,
    SCALED: tl.constexpr,
):
    """One program: BLOCK_L positions of one range, if it has so many. ranges: rows of `Range`."""
    STORED: tl.constexpr = RANK + ROTATED
    piece = ranges + tl.program_id(0) * FIELDS
    count = tl.load(piece + 2)
    first = tl.program_id(1) * BLOCK_L
    if first < count:
        table = tables + tl.load(piece).to(tl.int64) * table_stride
        position_L = first + tl.arange(0, BLOCK_L)
        known_L = position_L < count
        place_L = tl.load(piece + 3).to(tl.int64) + position_L
        position_L += tl.load(piece + 1)
        page_L = tl.load(table + position_L // PAGE, mask=known_L, other=0).to(tl.int64)
        from_L = pool + page_L * pool_stride_block + position_L % PAGE * STORED
        to_L = room + place_L * STORED
        scale = 1.0
        if SCALED:
            scale = tl.load(scales)
        _copy_entries(from_L, to_L, scale, known_L, 0, RANK, BLOCK_R, KIND, NATIVE, SCALED)
        _copy_entries(from_L, to_L, scale, known_L, RANK, ROTATED, BLOCK_W, KIND, NATIVE, SCALED)
