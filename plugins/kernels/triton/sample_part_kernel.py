"""Drawing from a part of the vocabulary: what `pick_kernel` does, and how good the choice is."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.random import gumbel
from jackfield.plugins.kernels.triton.sample_kernels import (
    BLOCKS,
    TOKENS,
    WEIGHT_ONE,
    WIDTH,
    first_of_highest,
    load_temperature,
)


@triton.jit
def pick_part_kernel(
    logits,
    maxima,
    sums,
    temperatures,
    seeds,
    positions,
    values,
    tokens,
    stride,
    vocabulary,
    blocks,
    first,
    SIZE: tl.constexpr,
    DRAWS: tl.constexpr,
):
    """One program per row. vocabulary: tokens of the part; first: id of the first of them, where a
    block begins. Noise depends on ids and blocks of the whole vocabulary, and the value is that of
    the block, so the best of all parts is what one program would choose among all."""
    row = tl.program_id(0)
    block = tl.arange(0, SIZE)
    at = row * blocks + block
    score = tl.load(maxima + at, block < blocks, other=float("-inf"))
    if DRAWS:
        temperature = load_temperature(temperatures, row)
        seed = tl.load(seeds + row)
        position = tl.load(positions + row)
        total = tl.load(sums + at, block < blocks, other=1).to(tl.float32)
        noise = gumbel(seed, position, first // WIDTH + block, BLOCKS)
        shift = tl.log(total / WEIGHT_ONE) + noise
        score = tl.where(score == float("-inf"), score, score + temperature * shift)
    best = first_of_highest(score, block)
    tl.store(values + row, tl.sum(tl.where(block == best, score, 0.0), 0))
    token = best * WIDTH + tl.arange(0, WIDTH)
    at = logits + row.to(tl.int64) * stride + token
    x = tl.load(at, token < vocabulary, other=float("-inf")).to(tl.float32)
    if DRAWS:
        x += temperature * gumbel(seed, position, first + token, TOKENS)
    tl.store(tokens + row, (first + first_of_highest(x, token)).to(tl.int64))
