"""From packed weights of few bits to a plain matrix, for products of many rows."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.quant_sums_kernel import AT_ONCE, BLOCK, SIDE
from jackfield.plugins.kernels.triton.quant_values_kernel import code


@triton.jit
def _spread(table, at, at_all, WHOLE: tl.constexpr):
    """Entries of a table as float32: one for all words of an output if WHOLE."""
    if WHOLE:
        found = tl.load(table + at).to(tl.float32)[:, None]
    else:
        found = tl.load(table + at_all).to(tl.float32)
    return found


@triton.jit(do_not_specialize=["first", "end"])
def quant_dense_kernel(
    words,
    scales,
    zeros,
    out,
    first,
    end,
    outputs,
    width,
    blocks,
    KIND: tl.constexpr,
    MIDDLE: tl.constexpr,
    GROUP: tl.constexpr,
    SHARING: tl.constexpr,
    ZEROS: tl.constexpr,
    WHOLE: tl.constexpr,
    NATIVE: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    """Outputs from `first`, a multiple of 16, up to `end`, one block of inputs; rounded once from
    float32.

    GROUP: inputs that share a scale; 0 = all. WHOLE: the same place of all words of a block is of
    one group. The rest is as for `quant_tile_kernel`.
    """
    VALUES: tl.constexpr = 4 if KIND == 4 else 2
    block = tl.program_id(1)
    output = first + tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    known = tl.minimum(output, end - 1)
    side = (first + tl.program_id(0) * OUTPUTS) // SIDE + tl.arange(0, OUTPUTS // SIDE)
    side = tl.minimum(side, (end - 1) // SIDE).to(tl.int64)
    at = (side * blocks + block)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    parts = tl.reshape(tl.load(words + at), [OUTPUTS // SIDE, 2, 8, 4, 2, 2, 2])  # side p g t q h c
    parts = tl.permute(parts, (0, 5, 2, 3, 1, 4, 6))
    wide = tl.reshape(parts, [OUTPUTS, AT_ONCE]).to(tl.int32)
    word = tl.arange(0, AT_ONCE)
    shared, step = known // SHARING, tl.cdiv(outputs, SHARING)
    place = (output - first).to(tl.int64) * width
    for value in tl.static_range(VALUES):
        begin = (block * VALUES + value) * AT_ONCE
        entry = begin + word
        # What is there only to fill the last block has no group.
        group = tl.minimum(begin, width - 1) // GROUP if GROUP > 0 else 0
        groups = tl.minimum(entry, width - 1) // GROUP if GROUP > 0 else entry * 0
        at_all = groups[None, :] * step + shared[:, None]
        result = code(wide, value, KIND, 0, NATIVE)
        if ZEROS:
            result -= _spread(zeros, group * step + shared, at_all, WHOLE)
        else:
            result -= MIDDLE
        result *= _spread(scales, group * step + shared, at_all, WHOLE)
        mask = (output < end)[:, None] & (entry < width)[None, :]
        tl.store(out + place[:, None] + entry[None, :], result.to(out.dtype.element_ty), mask)
