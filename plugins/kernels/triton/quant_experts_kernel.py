"""Products of tiles of rows, each of one expert, with weights of few bits.

Weights of all experts lie in one tall weight, expert after expert. Costs what it takes to read
those of the experts that have rows, as long as rows are few.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import let_next_begin, wait_alone
from jackfield.plugins.kernels.triton.experts_align_kernel import FIELDS
from jackfield.plugins.kernels.triton.experts_tile_kernel import place_of
from jackfield.plugins.kernels.triton.quant_halves_kernel import halves, sides_of_both
from jackfield.plugins.kernels.triton.quant_sums_kernel import SIDE, quant_sums


@triton.jit
def _tile_of(ids, tiles, tile, EXPERTS: tl.constexpr, DIRECT: tl.constexpr):
    """Its expert, or -1; its first row, and the end. They are there since the kernel in front of
    any that uses them began to compute."""
    if DIRECT:
        found = tl.load(ids + tile, cache_modifier=".cg")
        expert = tl.where((found >= 0) & (found < EXPERTS), found, -1).to(tl.int32)
        begin, end = tile, tile + 1
    else:
        expert = tl.load(tiles + tile * FIELDS, cache_modifier=".cg")
        begin = tl.load(tiles + tile * FIELDS + 1, cache_modifier=".cg")
        end = tl.load(tiles + tile * FIELDS + 2, cache_modifier=".cg")
    return expert, begin, end


@triton.jit
def _rows(begin, ROWS: tl.constexpr):
    """As `quant_sums` wants them."""
    return begin + tl.arange(0, ROWS // 8)[None, :] * 8 + tl.arange(0, 8)[:, None]


@triton.jit
def _store(sums, out, begin, end, first, outputs, ROWS: tl.constexpr, OUTPUTS: tl.constexpr):
    row = (begin + tl.arange(0, ROWS))[None, :]
    output = (first + tl.arange(0, OUTPUTS))[:, None]
    at = out + row.to(tl.int64) * outputs + output
    tl.store(at, sums.to(out.dtype.element_ty), (row < end) & (output < outputs))


@triton.jit(do_not_specialize=["tile_count", "groups"])
def quant_gate_up_kernel(
    x,
    words,
    scales,
    zeros,
    ids,
    token,
    tiles,
    place,
    counts,
    hidden,
    tile_count,
    groups,
    x_stride,
    width,
    outputs,
    apart,
    all_outputs,
    blocks,
    TOP: tl.constexpr,
    EXPERTS: tl.constexpr,
    DIRECT: tl.constexpr,
    COUNTED: tl.constexpr,
    KIND: tl.constexpr,
    BASE: tl.constexpr,
    MIDDLE: tl.constexpr,
    GROUP: tl.constexpr,
    SECTION: tl.constexpr,
    SHARING: tl.constexpr,
    ZEROS: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    ABREAST: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    TOGETHER: tl.constexpr,
    EARLY: tl.constexpr,
):
    """`silu(gate) * up` of some outputs of an expert, for a tile of its rows, to `[rows, outputs]`.

    apart: tiles of gate, behind which those of up lie. With two TILES a warp has one of each, else
    half of the warps ABREAST have gate's, the others up's. all_outputs: of all experts. DIRECT:
    each assignment is a tile, and a row; `place` is filled as `align_kernel` does, and `counts`, if
    COUNTED. TOP: of x, rows to a token. The rest is as for `quant_tile_kernel`.
    """
    SIDES: tl.constexpr = TILES * ABREAST // 2
    group, tile = place_of(tile_count, groups, TOGETHER)
    wait_alone(EARLY)
    # Only now, so that what this one may read is there for the next launch, too.
    let_next_begin(EARLY)
    expert, begin, end = _tile_of(ids, tiles, tile, EXPERTS, DIRECT)
    if DIRECT:
        tl.store(place + tile, tl.where(expert < 0, -1, tile), group == 0)
        if COUNTED:
            tl.atomic_add(counts + expert, 1, (group == 0) & (expert >= 0), sem="relaxed")
    if expert < 0:
        return
    side = expert * 2 * apart + group * SIDES + sides_of_both(apart, PARTS, TILES, ABREAST)
    row = _rows(begin, ROWS)
    inside = row < end
    source = row // TOP if DIRECT else tl.load(token + row, inside, other=0)
    sums = quant_sums(
        x + source.to(tl.int64) * x_stride, inside, words, scales, zeros, 0, width, side, apart,
        all_outputs, width, blocks, KIND, BASE, MIDDLE, GROUP, SECTION, SHARING, ZEROS, EVEN, EXACT,
        ASSEMBLY, ROWS, TILES, ABREAST, PARTS, BLOCKS, False, EARLY,
    )  # fmt: skip
    total = tl.sum(tl.reshape(sums, [PARTS, SIDE * TILES * ABREAST, ROWS]), 0)
    gate, up = halves(total, ROWS, TILES, ABREAST)
    gated = gate * tl.sigmoid(gate) * up
    _store(gated, hidden, begin, end, group * SIDES * SIDE, outputs, ROWS, SIDES * SIDE)


@triton.jit(do_not_specialize=["tile_count", "groups"])
def quant_down_kernel(
    hidden,
    words,
    scales,
    zeros,
    ids,
    tiles,
    made,
    tile_count,
    groups,
    width,
    outputs,
    sides,
    all_outputs,
    blocks,
    EXPERTS: tl.constexpr,
    DIRECT: tl.constexpr,
    KIND: tl.constexpr,
    BASE: tl.constexpr,
    MIDDLE: tl.constexpr,
    GROUP: tl.constexpr,
    SECTION: tl.constexpr,
    SHARING: tl.constexpr,
    ZEROS: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    ABREAST: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    TOGETHER: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Some outputs of an expert for a tile of its rows, to `[rows, outputs]`. sides: tiles of an
    expert. Reads weights, scales and zero points before it waits for the kernel in front."""
    OUTPUTS: tl.constexpr = SIDE * TILES * ABREAST
    group, tile = place_of(tile_count, groups, TOGETHER)
    let_next_begin(EARLY)
    expert, begin, end = _tile_of(ids, tiles, tile, EXPERTS, DIRECT)
    if expert < 0:
        wait_alone(EARLY)
        return
    warp = tl.arange(0, PARTS * ABREAST) % ABREAST
    side = expert * sides + (group * ABREAST + warp) * TILES
    row = _rows(begin, ROWS)
    sums = quant_sums(
        hidden + row.to(tl.int64) * width, row < end, words, scales, zeros, 0, width, side, 1,
        all_outputs, width, blocks, KIND, BASE, MIDDLE, GROUP, SECTION, SHARING, ZEROS, EVEN, EXACT,
        ASSEMBLY, ROWS, TILES, ABREAST, PARTS, BLOCKS, True, EARLY,
    )  # fmt: skip
    total = tl.sum(tl.reshape(sums, [PARTS, OUTPUTS, ROWS]), 0)
    _store(total, made, begin, end, group * OUTPUTS, outputs, ROWS, OUTPUTS)
