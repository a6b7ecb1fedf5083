"""Drawing a token in two steps: a block of the vocabulary, then a token of that block.

A token is drawn with the softmax's probabilities as the argmax of `logit + temperature * noise`,
the noise being Gumbel's. The same holds for whole blocks, with `largest + temperature * log(sum)`
in the place of the logit, where the sum is that of `exp((logit - largest) / temperature)`. So noise
is needed for all blocks, but only for the tokens of one. At temperature 0 both steps are an argmax.

Sums of weights are integers: they are exact, so neither the order of the additions nor the number
of programs can change a draw.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.random import gumbel

WIDTH: tl.constexpr = tl.constexpr(128)
"""Tokens of a block. It is part of what decides a draw."""
TOKENS: tl.constexpr = tl.constexpr(0)
"""Streams of noise."""
BLOCKS: tl.constexpr = tl.constexpr(1)
LARGEST_ID: tl.constexpr = tl.constexpr(0x7FFFFFFF)
ONE_BITS: tl.constexpr = tl.constexpr(0x3F800000)
"""1.0 as float32 is stored."""
WEIGHT_ONE: tl.constexpr = tl.constexpr(2.0**23)
"""The weight of a block's largest logit. 128 of them fit an int32."""
LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
LARGEST: tl.constexpr = tl.constexpr(3.4028234663852886e38)
"""Of the finite float32."""


@triton.jit
def ordered(x):
    """int32 keys in the order of the numbers. Both zeros are equal, NaN is the largest."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))


@triton.jit
def coefficient(temperature):
    """What differences of logits are multiplied with, to be exponents of 2. Finite even for 0."""
    return tl.minimum(1.0 / temperature * LOG2_E, LARGEST)


@triton.jit
def finite(x):
    """The nearest finite number."""
    return tl.minimum(tl.maximum(x, -LARGEST), LARGEST)


@triton.jit
def load_temperature(temperatures, row):
    """Beyond the limit nothing changes, but products would overflow."""
    return tl.minimum(tl.maximum(tl.load(temperatures + row), 0.0), 1e30)


@triton.jit
def shrink(x, largest, factor):
    """exp((x - largest) / temperature); `largest` and the factor are finite."""
    return tl.exp2((x - largest) * factor)


@triton.jit
def weigh(x, largest, factor):
    """The same as an integer: the mantissa that is left after 1 was added."""
    return (shrink(x, largest, factor) + 1.0).to(tl.int32, bitcast=True) - ONE_BITS


@triton.jit
def sum_of_weights(x, largest, factor):
    """Of blocks, relative to their largest logits, which need not be finite."""
    total = tl.sum(weigh(x, finite(largest)[:, None], factor), 1)
    return tl.where(largest == float("inf"), WEIGHT_ONE, total).to(tl.int32)


@triton.jit
def in_order(score, index):
    """int64 that are larger for higher scores and, among equals, for lower indices."""
    return (ordered(score).to(tl.int64) << 32) | (index ^ LARGEST_ID).to(tl.int64)


@triton.jit
def index_of(place):
    """The index of what `in_order` gave."""
    return (place & LARGEST_ID).to(tl.int32) ^ LARGEST_ID


@triton.jit
def first_of_highest(score, index):
    """The lowest index among the highest scores. NaN is the highest of all."""
    return index_of(tl.max(in_order(score, index), 0))


@triton.jit
def summarize_kernel(
    logits,
    maxima,
    sums,
    lows,
    temperatures,
    stride,
    vocabulary,
    blocks,
    TILE: tl.constexpr,
    DRAWS: tl.constexpr,
    FILTERED: tl.constexpr,
):
    """Per block: the largest logit, NaN if there is any, and the sum of weights, if some row draws.

    If some row is filtered: per program, the lowest logit but for -inf.
    """
    row = tl.program_id(1)
    block = tl.program_id(0) * TILE + tl.arange(0, TILE)
    token = block[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    at = logits + row.to(tl.int64) * stride + token
    x = tl.load(at, token < vocabulary, other=float("-inf")).to(tl.float32)
    largest = tl.max(x, 1)  # it passes over NaN
    marked = tl.where(tl.max((x != x).to(tl.int32), 1) > 0, float("nan"), largest)
    tl.store(maxima + row * blocks + block, marked, block < blocks)
    if DRAWS:
        factor = coefficient(load_temperature(temperatures, row))
        total = sum_of_weights(x, largest, factor)
        tl.store(sums + row * blocks + block, total, block < blocks)
    if FILTERED:
        possible = tl.where(x > float("-inf"), x, float("inf"))
        lowest = tl.min(tl.min(possible, 1), 0)
        tl.store(lows + row * tl.num_programs(0) + tl.program_id(0), lowest)


@triton.jit
def is_kept(x, token, cut, last):
    """cut: the lowest logit that a filter keeps. last: up to which id it keeps those that equal it.
    What is no number is kept, to be found."""
    return (x > cut) | ((x == cut) & (token <= last)) | (x != x)


@triton.jit
def pick_kernel(
    logits,
    maxima,
    sums,
    cuts,
    lasts,
    temperatures,
    seeds,
    positions,
    tokens,
    stride,
    vocabulary,
    blocks,
    SIZE: tl.constexpr,
    DRAWS: tl.constexpr,
    FILTERED: tl.constexpr,
):
    """One program per row: the best block, then its best token. SIZE: blocks and padding.

    A token whose logit is no number is marked: -1 - token.
    """
    row = tl.program_id(0)
    block = tl.arange(0, SIZE)
    at = row * blocks + block
    score = tl.load(maxima + at, block < blocks, other=float("-inf"))
    if FILTERED:
        cut = tl.load(cuts + row)
        score = tl.where(score < cut, float("-inf"), score)
    if DRAWS:
        temperature = load_temperature(temperatures, row)
        seed = tl.load(seeds + row)
        position = tl.load(positions + row)
        total = tl.load(sums + at, block < blocks, other=1).to(tl.float32)
        shift = tl.log(total / WEIGHT_ONE) + gumbel(seed, position, block, BLOCKS)
        score = tl.where(score == float("-inf"), score, score + temperature * shift)
    best = first_of_highest(score, block)
    token = best * WIDTH + tl.arange(0, WIDTH)
    at = logits + row.to(tl.int64) * stride + token
    x = tl.load(at, token < vocabulary, other=float("-inf")).to(tl.float32)
    if FILTERED:
        kept = is_kept(x, token, cut, tl.load(lasts + row))
        x = tl.where(kept, x, float("-inf"))
    if DRAWS:
        x += temperature * gumbel(seed, position, token, TOKENS)
    chosen = first_of_highest(x, token).to(tl.int64)
    unsound = tl.max((x != x).to(tl.int32), 0) > 0
    tl.store(tokens + row, tl.where(unsound, -1 - chosen, chosen))
