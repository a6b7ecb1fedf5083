"""Gate and up of a weight whose first half of outputs is gate, in programs that have some of both.

With two TILES a warp has one of gate, and the one of up that belongs to it; else half of the warps
ABREAST have gate's, the others up's.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.quant_sums_kernel import SIDE


@triton.jit
def sides_of_both(apart, PARTS: tl.constexpr, TILES: tl.constexpr, ABREAST: tl.constexpr):
    """`[warps]`: the first tile of each, counted from the program's first. apart: tiles of gate,
    behind which those of up lie."""
    SIDES: tl.constexpr = TILES * ABREAST // 2
    warp = tl.arange(0, PARTS * ABREAST) % ABREAST
    if TILES == 1:
        warp = warp % SIDES + warp // SIDES * apart
    return warp


@triton.jit
def halves(total, ROWS: tl.constexpr, TILES: tl.constexpr, ABREAST: tl.constexpr):
    """Gate and up, `[outputs, ROWS]` each, of what all warps of a program have."""
    OUTPUTS: tl.constexpr = SIDE * TILES * ABREAST // 2
    if TILES == 2:
        parts = tl.permute(tl.reshape(total, [ABREAST, 2, SIDE * ROWS]), (0, 2, 1))
    else:
        parts = tl.permute(tl.reshape(total, [2, OUTPUTS * ROWS]), (1, 0))
    gate, up = tl.split(parts)
    return tl.reshape(gate, [OUTPUTS, ROWS]), tl.reshape(up, [OUTPUTS, ROWS])
