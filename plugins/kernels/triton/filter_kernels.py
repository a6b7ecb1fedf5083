"""top_k, top_p and min_p without a sort: where a row's order is cut, and what is left of blocks.

In the order of (logit, then lowest id) every filter keeps a beginning, so all of them together keep
one, too. It is told by the lowest logit in it, and by the last id of those that equal that logit.
Blocks whose largest logit is below a floor that the cut cannot fall under are not looked at.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.narrow_kernels import (
    MASS_ONE,
    MASS_PER_WEIGHT,
    TRIES,
    key_at_least,
    load_tile,
    measure,
    narrow,
    value,
)
from jackfield.plugins.kernels.triton.sample_kernels import (
    LARGEST_ID,
    WIDTH,
    coefficient,
    is_kept,
    load_temperature,
    ordered,
    shrink,
    weigh,
)

DEEPEST: tl.constexpr = tl.constexpr(40.0)
"""How far below the largest logit, in temperatures, what follows certainly has no mass."""


@triton.jit
def kth_largest(maxima, k, low, high, UNUSED: tl.constexpr):
    """The key of the k-th largest block, or `low` if that is higher."""
    keys = ordered(maxima) >> UNUSED
    while high - low > 1:
        middle = (low + high) >> 1
        enough = tl.sum((keys >= middle.to(tl.int32)).to(tl.int32), 0) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return low


@triton.jit
def nucleus_floor(maxima, masses, total, top_p, largest, temperature, floor):
    """A logit below which there is less than top_p leaves out, by what is known of the blocks."""
    factor = coefficient(temperature)
    share = 0.99 * (1.0 - top_p) - 1e-6
    allowed = share * total.to(tl.float32)
    mass = masses.to(tl.float32)
    others = tl.maximum(mass - shrink(maxima, largest, factor) * MASS_ONE, 0.0)
    low = tl.maximum(floor, largest - DEEPEST * temperature)
    high = tl.maximum(largest, low)
    for _ in range(12):
        middle = low + (high - low) * 0.5
        most = shrink(middle, largest, factor) * (MASS_ONE * WIDTH)
        below = tl.sum(tl.where(maxima < middle, mass, tl.minimum(others, most)), 0)
        low = tl.where(below <= allowed, middle, low)
        high = tl.where(below <= allowed, high, middle)
    return tl.where(share > 1e-7, low, floor)


@triton.jit
def floor_key(
    maxima, masses, total, lowest, largest, temperature, top_k, top_p, min_p, by_number, blocks,
    UNUSED: tl.constexpr,
):  # fmt: skip
    """A key below which nothing is kept, by what is known of the blocks."""
    low = key_at_least(tl.maximum(lowest, largest + temperature * tl.log(min_p)), UNUSED)
    if by_number & (top_k <= blocks):
        low = kth_largest(maxima, top_k, low, key_at_least(largest, UNUSED) + 1, UNUSED)
    if (by_number == 0) & (min_p <= 0.0):
        floor = value(low, UNUSED)
        floor = nucleus_floor(maxima, masses, total, top_p, largest, temperature, floor)
        low = key_at_least(floor, UNUSED)
    return low


@triton.jit
def list_blocks(maxima, floor, listed, SIZE: tl.constexpr):
    """Writes down which blocks reach the floor, in their order; returns how many."""
    chosen = maxima >= floor
    place = tl.cumsum(chosen.to(tl.int32), 0) - 1
    tl.store(listed + place, tl.arange(0, SIZE), chosen)
    tl.debug_barrier()  # other threads read them
    return tl.sum(chosen.to(tl.int32), 0)


@triton.jit
def id_of_nth(logits, listed, count, vocabulary, cut, n, TILE: tl.constexpr):
    """The id of the n-th logit that equals `cut`; the largest of all ids if there are fewer."""
    found = count * 0 + LARGEST_ID
    before = n * 0
    start = 0 * count
    while (start < count) & (before < n):
        x, token, _ = load_tile(logits, listed, start, count, vocabulary, TILE)
        equal = (x == cut).to(tl.int32)
        in_block = tl.sum(equal, 1)
        rank = before + (tl.cumsum(in_block, 0) - in_block)[:, None] + tl.cumsum(equal, 1)
        ids = tl.where((equal > 0) & (rank == n), token, LARGEST_ID)
        found = tl.minimum(found, tl.min(tl.min(ids, 1), 0))
        before += tl.sum(in_block, 0)
        start += TILE
    return found


@triton.jit
def find_cut(
    logits,
    all_maxima,
    maxima,
    sums,
    lowest,
    listed,
    largest,
    temperature,
    top_k,
    top_p,
    min_p,
    vocabulary,
    blocks,
    SIZE: tl.constexpr,
    UNUSED: tl.constexpr,
    TILE: tl.constexpr,
):
    """The lowest kept logit, and the last id of its equals.

    lowest: of the row's logits, but for -inf. maxima and sums: those of all blocks, as loaded.
    """
    factor = coefficient(temperature)
    scale = shrink(maxima, largest, factor) * MASS_PER_WEIGHT
    masses = tl.where(maxima > float("-inf"), (sums.to(tl.float32) * scale).to(tl.int64), 0)
    total = tl.sum(masses, 0)
    number = total * 0 + vocabulary
    by_number = (top_k > 0) & (top_k < vocabulary)
    low = floor_key(
        maxima, masses, total, lowest, largest, temperature, top_k, top_p, min_p, by_number,
        blocks, UNUSED,
    )  # fmt: skip
    high = key_at_least(largest, UNUSED) + 1
    count = list_blocks(maxima, value(low, UNUSED), listed, SIZE)
    if by_number | (min_p > 0.0):
        numbers, totals = measure(
            logits, all_maxima, listed, count, largest, factor, vocabulary,
            low + tl.zeros([TRIES], tl.int64), UNUSED, TILE,
        )  # fmt: skip
        number = tl.max(numbers, 0)
        total = tl.max(totals, 0)
    # How many logits are above the key, and how many of those at it are kept.
    above = number * 0
    equals = number
    if by_number & (number > top_k):
        low, number, total, above, mass_above = narrow(
            logits, all_maxima, listed, count, largest, factor, vocabulary,
            low, high, number, total, top_k.to(tl.int64), False, UNUSED, TILE,
        )  # fmt: skip
        equals = top_k - above
        if equals < number - above:
            total = mass_above + equals * mass_of(low, largest, factor, UNUSED)
    if top_p < 1.0:
        wanted = tl.maximum(tl.ceil(total.to(tl.float64) * top_p.to(tl.float64)).to(tl.int64), 1)
        cut, number_cut, _, above_cut, mass_above = narrow(
            logits, all_maxima, listed, count, largest, factor, vocabulary,
            low, high, above + equals, total, wanted, True, UNUSED, TILE,
        )  # fmt: skip
        between = number_cut - above_cut
        needed = equals_needed(wanted - mass_above, mass_of(cut, largest, factor, UNUSED))
        equals = tl.where(between > 1, tl.minimum(needed, between), 1)
        number = tl.where(cut == low, tl.maximum(number, number_cut), number_cut)
        low, above = cut, above_cut
    last = count * 0 + LARGEST_ID
    if equals < number - above:
        n = equals.to(tl.int32)
        last = id_of_nth(logits, listed, count, vocabulary, value(low, UNUSED), n, TILE)
    return value(low, UNUSED), last


@triton.jit
def mass_of(key, largest, factor, UNUSED: tl.constexpr):
    """The mass of one logit."""
    return (shrink(value(key, UNUSED), largest, factor) * MASS_ONE).to(tl.int64)


@triton.jit
def equals_needed(mass, each):
    """How many logits of the same mass reach a mass; very many if theirs is too little to count."""
    return tl.where(each > 0, tl.maximum((mass + each - 1) // tl.maximum(each, 1), 1), LARGEST_ID)


@triton.jit
def cut_kernel(
    logits,
    maxima,
    sums,
    lows,
    listed,
    cuts,
    lasts,
    temperatures,
    top_ks,
    top_ps,
    min_ps,
    stride,
    vocabulary,
    blocks,
    parts,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    UNUSED: tl.constexpr,
    TILE: tl.constexpr,
):
    """One program per row. A row that is not filtered is cut below -inf: nothing is left out.

    So is one whose largest logit is no number or infinite. SIZE, PARTS: with padding. UNUSED: how
    many of the lowest bits of float32 the type of the logits leaves 0.
    """
    row = tl.program_id(0)
    block = tl.arange(0, SIZE)
    part = tl.arange(0, PARTS)
    at = row * blocks + block
    own = tl.load(maxima + at, block < blocks, other=float("-inf"))
    largest = tl.max(tl.where(own != own, float("inf"), own), 0)
    temperature = load_temperature(temperatures, row)
    top_k = tl.load(top_ks + row).to(tl.int32)
    top_p = tl.load(top_ps + row)
    min_p = tl.load(min_ps + row)
    wanted = ((top_k > 0) & (top_k < vocabulary)) | (top_p < 1.0) | (min_p > 0.0)
    cut = temperature * 0.0 + float("-inf")
    last = top_k * 0 + LARGEST_ID
    if wanted & (temperature > 0.0) & (tl.abs(largest) < float("inf")):
        total = tl.load(sums + at, block < blocks, other=0)
        lowest = tl.load(lows + row * parts + part, part < parts, other=float("inf"))
        cut, last = find_cut(
            logits + row.to(tl.int64) * stride, maxima + row * blocks, own, total,
            tl.min(lowest, 0), listed + row * blocks, largest, temperature, top_k, top_p, min_p,
            vocabulary, blocks, SIZE, UNUSED, TILE,
        )  # fmt: skip
    tl.store(cuts + row, cut)
    tl.store(lasts + row, last)


@triton.jit
def restrict_kernel(
    logits,
    maxima,
    sums,
    cuts,
    lasts,
    temperatures,
    stride,
    vocabulary,
    blocks,
    TILE: tl.constexpr,
):
    """What is left of the blocks behind the cut, in the place of what `summarize_kernel` found."""
    row = tl.program_id(1)
    cut = tl.load(cuts + row)
    last = tl.load(lasts + row)
    if cut > float("-inf"):
        block = tl.program_id(0) * TILE + tl.arange(0, TILE)
        token = block[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        at = row * blocks + block
        own = tl.load(maxima + at, block < blocks, other=float("-inf"))
        some = (own >= cut)[:, None] & (token < vocabulary)
        x = tl.load(logits + row.to(tl.int64) * stride + token, some, other=float("-inf"))
        x = x.to(tl.float32)
        x = tl.where(is_kept(x, token, cut, last), x, float("-inf"))
        largest = tl.max(x, 1)
        factor = coefficient(load_temperature(temperatures, row))
        tl.store(maxima + at, largest, block < blocks)
        tl.store(sums + at, tl.sum(weigh(x, largest[:, None], factor), 1), block < blocks)
