"""Products of few rows with weights of few bits."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.ahead_kernel import fetch
from jackfield.plugins.kernels.triton.early_kernel import let_next_begin
from jackfield.plugins.kernels.triton.quant_halves_kernel import halves, sides_of_both
from jackfield.plugins.kernels.triton.quant_sums_kernel import AT_ONCE, BLOCK, SIDE, quant_sums
from jackfield.plugins.kernels.triton.silu_mul_kernel import gated

LINE: tl.constexpr = tl.constexpr(64)
"""Words that the cache fetches at once."""


@triton.jit
def ask_early(words, tile, begin, outputs, blocks, AHEAD: tl.constexpr):
    """Has the cache fetch AHEAD lines of each of a program's tiles, from a block of inputs on."""
    tile = tl.minimum(tile, tl.cdiv(outputs, SIDE) - 1)
    line = begin * (BLOCK // LINE) + tl.arange(0, AHEAD)
    line = tl.minimum(line, blocks * (BLOCK // LINE) - 1)
    address = words + tile.to(tl.int64)[:, None] * blocks * BLOCK + line[None, :] * LINE
    fetch(address.to(tl.int64))


@triton.jit
def _biased(sums, bias, output, outputs, BIASED: tl.constexpr):
    """output can be broadcast to sums."""
    if BIASED:
        sums += tl.load(bias + output, output < outputs, other=0.0).to(tl.float32)
    return sums


@triton.jit
def _finish(
    sums, bias, out, program, row, rows, outputs,
    OUTPUTS: tl.constexpr, ROWS: tl.constexpr, BIASED: tl.constexpr, GATED: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """Adds the bias and stores; if GATED, what gate and up are rounded to makes `silu(gate) * up`.
    row can be broadcast to sums."""
    OF: tl.constexpr = out.dtype.element_ty
    if GATED:
        outputs //= 2
        output = program * (OUTPUTS // 2) + tl.arange(0, OUTPUTS // 2)[:, None]
        gate, up = halves(sums, ROWS, TILES, OUTPUTS // SIDE // TILES)
        gate = _biased(gate, bias, output, outputs, BIASED).to(OF)
        up = _biased(up, bias + outputs, output, outputs, BIASED).to(OF)
        sums = gated(gate.to(tl.float32), up.to(tl.float32))
    else:
        output = program * OUTPUTS + tl.arange(0, OUTPUTS)[:, None]
        sums = _biased(sums, bias, output, outputs, BIASED)
    where = row.to(tl.int64) * outputs + output
    tl.store(out + where, sums.to(OF), (row < rows) & (output < outputs))


@triton.jit
def _hand_in(
    total, bias, out, partials, counters, program, split, splits, first_row, rows, outputs,
    OUTPUTS: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, BIASED: tl.constexpr,
    GATED: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Stores a program's sums; where several share them, whoever is last adds all up."""
    AT_A_TIME: tl.constexpr = 8 if ROWS <= 16 else 2
    row = tl.arange(0, ROWS)[None, :]
    where = tl.arange(0, OUTPUTS)[:, None] * ROWS + row
    row = first_row + row
    if not SPLIT:
        _finish(
            total, bias, out, program, row, rows, outputs, OUTPUTS, ROWS, BIASED, GATED, TILES
        )  # fmt: skip
    else:
        shared = program * tl.num_programs(0) + tl.program_id(0)
        step = (tl.num_programs(0) * tl.num_programs(1)).to(tl.int64) * (OUTPUTS * ROWS)
        at = partials + shared.to(tl.int64) * (OUTPUTS * ROWS) + where
        tl.store(at + split * step, total, row < rows)
        # All threads' results must be out before this program says so.
        tl.debug_barrier()
        done = tl.atomic_add(counters + shared, 1, sem="acq_rel", scope="gpu")
        if done == splits - 1:
            tl.store(counters + shared, 0)
            total = tl.zeros([OUTPUTS, ROWS], tl.float32)
            for part in tl.range(0, splits, loop_unroll_factor=AT_A_TIME):
                # Other programs have written these, maybe since this one began.
                total += tl.load(at + part * step, row < rows, other=0.0, cache_modifier=".cg")
            _finish(
                total, bias, out, program, row, rows, outputs, OUTPUTS, ROWS, BIASED, GATED, TILES
            )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def quant_tile_kernel(
    x,
    words,
    scales,
    zeros,
    bias,
    out,
    partials,
    counters,
    rows,
    outputs,
    x_stride,
    width,
    blocks,
    apart,
    KIND: tl.constexpr,
    BASE: tl.constexpr,
    MIDDLE: tl.constexpr,
    GROUP: tl.constexpr,
    SECTION: tl.constexpr,
    SHARING: tl.constexpr,
    ZEROS: tl.constexpr,
    BIASED: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    ABREAST: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    SPLIT: tl.constexpr,
    GATED: tl.constexpr,
    AHEAD: tl.constexpr,
    EARLY: tl.constexpr,
):
    """ROWS rows a program, those of the same outputs side by side. Reads weights, scales and zero
    points before it waits for the kernel in front, which must not be the one that wrote them.

    TILES: of 16 outputs, of a warp: 1 or 2. ABREAST: warps with outputs of their own. PARTS: warps
    that share outputs. BLOCKS: of inputs, of each tile, that a warp loads at once while it works on
    as many. GROUP: inputs that share a scale; 0 = all. SECTION: inputs of a block that do, a
    multiple of 32. SHARING: outputs that share a scale. MIDDLE: the zero point if there are no
    ZEROS. SPLIT: several programs share the inputs of each group of outputs; whoever is last adds
    up what all have left in `partials`, always in the same order, and sets the group's counter back
    to 0. EVEN: all blocks are whole. EXACT: products of float32.

    GATED: the outputs are gate and, as many behind them, up; a program has some of both, and stores
    `silu(gate) * up`. apart: tiles between the two of a warp: those of gate if so, else 1.
    """
    INPUTS: tl.constexpr = (4 if KIND == 4 else 2) * AT_ONCE
    OUTPUTS: tl.constexpr = SIDE * TILES * ABREAST
    STEP: tl.constexpr = PARTS * INPUTS
    program, split = tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(2)
    first_row = tl.program_id(0) * ROWS
    share = tl.cdiv(tl.cdiv(width, STEP * BLOCKS), splits) * (STEP * BLOCKS)
    begin = split * share
    end = tl.minimum(begin + share, width)
    let_next_begin(EARLY)
    if GATED:
        place = program * (TILES * ABREAST // 2)
        side = place + sides_of_both(apart, PARTS, TILES, ABREAST)
        tile = place + sides_of_both(apart, 1, 1, TILES * ABREAST)
    else:
        side = (program * ABREAST + tl.arange(0, PARTS * ABREAST) % ABREAST) * TILES
        tile = program * (TILES * ABREAST) + tl.arange(0, TILES * ABREAST)
    if AHEAD > 0:
        ask_early(words, tile, begin // INPUTS, outputs, blocks, AHEAD)
    row = first_row + tl.arange(0, ROWS // 8)[None, :] * 8 + tl.arange(0, 8)[:, None]
    sums = quant_sums(
        x + row.to(tl.int64) * x_stride, row < rows, words, scales, zeros, begin, end, side, apart,
        outputs, width, blocks, KIND, BASE, MIDDLE, GROUP, SECTION, SHARING, ZEROS, EVEN, EXACT,
        ASSEMBLY, ROWS, TILES, ABREAST, PARTS, BLOCKS, True, EARLY,
    )  # fmt: skip
    total = tl.sum(tl.reshape(sums, [PARTS, OUTPUTS, ROWS]), 0)
    _hand_in(
        total, bias, out, partials, counters, program, split, splits, first_row, rows, outputs,
        OUTPUTS, ROWS, SPLIT, BIASED, GATED, TILES,
    )  # fmt: skip
