"""Where, among all possible logits, a wanted number or mass of a row's logits is reached.

The keys of logits (`ordered`, but for bits that are the same in all numbers of the type) are
searched: a few are tried at once, each for the number and the mass of the logits that are not
lower, until two keys side by side have too little and enough. Only listed blocks are looked at.
Masses are integers, so they do not depend on the order in which they are added.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.sample_kernels import (
    WIDTH,
    ordered,
    shrink,
    weigh,
)

MASS_ONE: tl.constexpr = tl.constexpr(2.0**40)
"""The mass of a row's largest logit. 2^23 of them fit an int64."""
MASS_PER_WEIGHT: tl.constexpr = tl.constexpr(2.0**17)

TRIES: tl.constexpr = tl.constexpr(4)
"""Keys that are tried at once."""
STAGES: tl.constexpr = tl.constexpr(4)
"""Tiles that are on their way at once, in shared memory."""


@triton.jit
def unordered(key):
    """The float32 that a key of 32 bits stands for."""
    key = key.to(tl.int32)
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def key_at_least(x, UNUSED: tl.constexpr):
    """The lowest key, without unused bits, of a number of the type that is not lower than x."""
    key = ordered(x).to(tl.int64)
    return (key + tl.where(key < 0, 0, (1 << UNUSED) - 1)) >> UNUSED


@triton.jit
def threshold(key, UNUSED: tl.constexpr):
    """What separates the key's number from the next lower one of the type."""
    return unordered(key << UNUSED)


@triton.jit
def value(key, UNUSED: tl.constexpr):
    """The number of the type that has this key."""
    return unordered((key << UNUSED) | tl.where(key < 0, (1 << UNUSED) - 1, 0))


@triton.jit
def load_numbers(listed, start, count, TILE: tl.constexpr):
    """Of some of the listed blocks; 0 behind the end."""
    index = start + tl.arange(0, TILE)
    return tl.load(listed + index, index < count, other=0)


@triton.jit
def load_blocks(logits, block, start, count, vocabulary, TILE: tl.constexpr):
    """Logits, and ids of tokens, of blocks with these numbers; -inf behind the end."""
    index = start + tl.arange(0, TILE)
    token = block[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    mask = (index < count)[:, None] & (token < vocabulary)
    return tl.load(logits + token, mask, other=float("-inf")).to(tl.float32), token


@triton.jit
def load_tile(logits, listed, start, count, vocabulary, TILE: tl.constexpr):
    """Some of the listed blocks: their logits, ids of tokens, and numbers of blocks."""
    block = load_numbers(listed, start, count, TILE)
    x, token = load_blocks(logits, block, start, count, vocabulary, TILE)
    return x, token, block


@triton.jit
def entry(vector, index):
    """One of the entries of a short vector."""
    place = tl.arange(0, TRIES)
    return tl.sum(tl.where(place == index, vector, 0), 0)


@triton.jit
def measure(
    logits, maxima, listed, count, largest, factor, vocabulary, keys,
    UNUSED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """For each of the keys: how many logits are not lower, and their mass."""
    least = threshold(keys, UNUSED)
    least0, least1 = entry(least, 0), entry(least, 1)
    least2, least3 = entry(least, 2), entry(least, 3)
    none = tl.zeros([TILE], tl.int32)
    number0, number1, number2, number3 = none, none, none, none
    none = tl.zeros([TILE], tl.int64)
    mass0, mass1, mass2, mass3 = none, none, none, none
    block = load_numbers(listed, 0, count, TILE)
    for start in tl.range(0, count, TILE, num_stages=STAGES):
        x, _ = load_blocks(logits, block, start, count, vocabulary, TILE)
        own = tl.load(maxima + block)
        block = load_numbers(listed, start + TILE, count, TILE)
        weights = weigh(x, own[:, None], factor)
        scale = shrink(own, largest, factor) * MASS_PER_WEIGHT
        # A block's sum is exact, and each block is rounded by itself.
        number0 += tl.sum((x >= least0).to(tl.int32), 1)
        number1 += tl.sum((x >= least1).to(tl.int32), 1)
        number2 += tl.sum((x >= least2).to(tl.int32), 1)
        number3 += tl.sum((x >= least3).to(tl.int32), 1)
        mass0 += (tl.sum(tl.where(x >= least0, weights, 0), 1).to(tl.float32) * scale).to(tl.int64)
        mass1 += (tl.sum(tl.where(x >= least1, weights, 0), 1).to(tl.float32) * scale).to(tl.int64)
        mass2 += (tl.sum(tl.where(x >= least2, weights, 0), 1).to(tl.float32) * scale).to(tl.int64)
        mass3 += (tl.sum(tl.where(x >= least3, weights, 0), 1).to(tl.float32) * scale).to(tl.int64)
    number = four(tl.sum(number0, 0), tl.sum(number1, 0), tl.sum(number2, 0), tl.sum(number3, 0))
    mass = four(tl.sum(mass0, 0), tl.sum(mass1, 0), tl.sum(mass2, 0), tl.sum(mass3, 0))
    return number.to(tl.int64), mass


@triton.jit
def four(a, b, c, d):
    """A short vector."""
    place = tl.arange(0, TRIES)
    return tl.where(place == 0, a, tl.where(place == 1, b, tl.where(place == 2, c, d)))


@triton.jit
def guesses(low, high, at_low, at_high, wanted, UNUSED: tl.constexpr):
    """Four keys between two: the middle of the keys, that of the numbers, and around where the
    wanted one would be if what is measured were linear. All keys if there are few."""
    place = tl.arange(0, TRIES)
    x_low = value(low, UNUSED)
    width = value(high, UNUSED) - x_low
    share = (at_low - wanted).to(tl.float32) / (at_low - at_high).to(tl.float32)
    share = tl.where(place == 1, 0.5, share + tl.where(place == 2, -1.0, 1.0) / 32)
    keys = ordered(x_low + width * share).to(tl.int64) >> UNUSED
    keys = tl.where(place == 0, (low + high) >> 1, keys)
    keys = tl.where(high - low <= TRIES + 1, low + 1 + place, keys)
    return tl.minimum(tl.maximum(keys, low + 1), high - 1)


@triton.jit
def narrow(
    logits, maxima, listed, count, largest, factor, vocabulary,
    low, high, number_low, mass_low, wanted,
    BY_MASS: tl.constexpr, UNUSED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The highest key at which there is as much as is wanted, what is there, and what is above.

    Ends early if there is only one logit more at the key than above: then there may be higher keys
    that say the same. At `low` there must be enough; what is said to be there may be too much.
    """
    number_high = wanted * 0
    mass_high = wanted * 0
    while (high - low > 1) & (number_low - number_high > 1):
        if BY_MASS:
            keys = guesses(low, high, mass_low, mass_high, wanted, UNUSED)
        else:
            keys = guesses(low, high, number_low, number_high, wanted, UNUSED)
        number, mass = measure(
            logits, maxima, listed, count, largest, factor, vocabulary, keys, UNUSED, TILE
        )
        enough = mass >= wanted if BY_MASS else number >= wanted
        # Numbers and masses fall with the key.
        low = tl.maximum(low, tl.max(tl.where(enough, keys, low), 0))
        high = tl.minimum(high, tl.min(tl.where(enough, high, keys), 0))
        number_low = tl.min(tl.where(enough, number, number_low), 0)
        mass_low = tl.min(tl.where(enough, mass, mass_low), 0)
        number_high = tl.max(tl.where(enough, number_high, number), 0)
        mass_high = tl.max(tl.where(enough, mass_high, mass), 0)
    return low, number_low, mass_low, number_high, mass_high
