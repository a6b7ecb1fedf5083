"""Noise that depends on a seed, a position and a number alone: a counter-based generator."""

import triton
import triton.language as tl


@triton.jit
def gumbel(seed, position, index, STREAM: tl.constexpr):
    """Standard Gumbel noise for each index (int32) of one of several streams. Always finite.

    Philox with 10 rounds: the seed is the key, and the counter is made of the index, the stream and
    the position. 64 of its 128 bits become noise.
    """
    low = (position & 0xFFFFFFFF).to(tl.uint32)
    high = ((position >> 32) & 0xFFFFFFFF).to(tl.uint32)
    stream = index * 0 + STREAM
    first, second, _, _ = tl.philox(seed, index, stream, low, high)
    return noise(first, second)


@triton.jit
def noise(first, second):
    """Of 64 random bits. What is near 0 in `part` becomes the largest noise, up to 45, and has the
    full relative precision of float32 there, so the tail has no steps."""
    part = first.to(tl.float32) * 2.0**-32 + (second.to(tl.float32) + 0.5) * 2.0**-64
    # -log(1 - part); the logarithm alone is imprecise near 1.
    series = 1.0 / 3.0 + part * (0.25 + part * 0.2)
    series = part * (1.0 + part * (0.5 + part * series))
    rest = tl.maximum(1.0 - part, 2.0**-25)
    exponential = tl.where(part < 1.0 / 64.0, series, -tl.log(rest))
    return -tl.log(exponential)
