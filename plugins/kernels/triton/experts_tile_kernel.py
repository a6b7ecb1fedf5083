"""Products of rows that were sorted by expert, on tensor cores.

Costs what it takes to read the weights of the experts that have rows, as long as those are few.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.ahead_kernel import ask_for
from jackfield.plugins.kernels.triton.early_kernel import let_next_begin, wait_alone
from jackfield.plugins.kernels.triton.experts_align_kernel import FIELDS
from jackfield.plugins.kernels.triton.linear_kernels import tile_sums


@triton.jit
def place_of(tile_count, groups, TOGETHER: tl.constexpr):
    """The group of outputs and the tile of a program. So many tiles that follow each other take
    turns, so that what they read of one expert's weights is in the cache."""
    number = tl.program_id(0)
    span = TOGETHER * groups
    first = number // span * TOGETHER
    height = tl.minimum(tile_count - first, TOGETHER)
    within = number % span
    return within // height, first + within % height


@triton.jit(do_not_specialize=["tile_count"])
def gate_up_tile_kernel(
    x,
    gate_up,
    token,
    tiles,
    hidden,
    tile_count,
    groups,
    x_stride,
    inputs,
    outputs,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):
    """`silu(gate) * up` of OUTPUTS of an expert, for a tile of its rows, to `[rows, outputs]`.

    Gate and up of an output are neighbours of one product. EVEN: all blocks are whole. EXACT:
    products of float32.
    """
    group, tile = place_of(tile_count, groups, TOGETHER)
    wait_alone(EARLY)
    # Only now, so that what this one may read is there for the next launch, too.
    let_next_begin(EARLY)
    expert = tl.load(tiles + tile * FIELDS).to(tl.int64)
    if expert < 0:
        return
    row = tl.load(tiles + tile * FIELDS + 1) + tl.arange(0, ROWS)
    inside = row < tl.load(tiles + tile * FIELDS + 2)
    rows = x + tl.load(token + row, inside, other=0).to(tl.int64) * x_stride
    both = tl.arange(0, 2 * OUTPUTS)
    # What lies past the end is computed from the last one, and never stored.
    output = tl.minimum(group * OUTPUTS + both // 2, outputs - 1)
    weights = gate_up + ((2 * expert + both % 2) * outputs + output) * inputs
    sums = tile_sums(rows, weights, 0, inputs, ROWS, 2 * OUTPUTS, BLOCK, EVEN, EXACT, STAGES)
    gate, up = tl.split(tl.permute(tl.reshape(sums, (OUTPUTS, 2, ROWS)), (0, 2, 1)))
    gated = gate * tl.sigmoid(gate) * up
    output = (group * OUTPUTS + tl.arange(0, OUTPUTS))[:, None]
    at = row.to(tl.int64)[None, :] * outputs + output
    tl.store(hidden + at, gated.to(hidden.dtype.element_ty), inside[None, :] & (output < outputs))


@triton.jit(do_not_specialize=["tile_count"])
def down_tile_kernel(
    hidden,
    down,
    tiles,
    made,
    tile_count,
    groups,
    inputs,
    outputs,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    STAGES: tl.constexpr,
    AHEAD: tl.constexpr,
    EARLY: tl.constexpr,
):
    """OUTPUTS of an expert for a tile of its rows, to `[rows, outputs]`. AHEAD: entries of each
    output's weights that are asked for before the kernel in front ends."""
    group, tile = place_of(tile_count, groups, TOGETHER)
    # Tiles are there since the kernel in front began to compute.
    at_tile = tiles + tile * FIELDS
    expert = tl.load(at_tile, cache_modifier=".cg").to(tl.int64)
    row = tl.load(at_tile + 1, cache_modifier=".cg") + tl.arange(0, ROWS)
    inside = row < tl.load(at_tile + 2, cache_modifier=".cg")
    output = group * OUTPUTS + tl.arange(0, OUTPUTS)
    # What lies past the end is computed from the last one, and never stored.
    weights = down + (expert * outputs + tl.minimum(output, outputs - 1)) * inputs
    if expert >= 0:
        ask_for(weights, 0, inputs, AHEAD)
    wait_alone(EARLY)
    let_next_begin(EARLY)
    if expert < 0:
        return
    rows = hidden + tl.where(inside, row, 0).to(tl.int64) * inputs
    sums = tile_sums(rows, weights, 0, inputs, ROWS, OUTPUTS, BLOCK, EVEN, EXACT, STAGES)
    at = row.to(tl.int64)[None, :] * outputs + output[:, None]
    mask = inside[None, :] & (output < outputs)[:, None]
    tl.store(made + at, sums.to(made.dtype.element_ty), mask)
