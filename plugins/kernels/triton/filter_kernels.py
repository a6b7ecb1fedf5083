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
from jackfield.plugins.kernels.triton.rank_kernels import (
    ROOM,
    collect,
    cut_by_rank,
    mass_wanted,
)
from jackfield.plugins.kernels.triton.sample_kernels import (
    LARGEST_ID,
    WIDTH,
    coefficient,
    is_kept,
    load_temperature,
    ordered,
    shrink,
    sum_of_weights,
)

DEEPEST: tl.constexpr = tl.constexpr(40.0)
"""How far below the largest logit, in temperatures, what follows certainly has no mass."""
FEW_BLOCKS: tl.constexpr = tl.constexpr(64)
"""So many need no further program to be restricted."""


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
    allowed = (share * total.to(tl.float32)).to(tl.int64)
    most_others = masses.to(tl.float32) - shrink(maxima, largest, factor) * MASS_ONE
    others = tl.maximum(most_others, 0.0).to(tl.int64)
    low = tl.maximum(floor, largest - DEEPEST * temperature)
    high = tl.maximum(largest, low)
    for _ in range(12):
        middle = low + (high - low) * 0.5
        most = (shrink(middle, largest, factor) * (MASS_ONE * WIDTH)).to(tl.int64)
        below = tl.sum(tl.where(maxima < middle, masses, tl.minimum(others, most)), 0)
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
    logits, all_maxima, maxima, sums, lowest, listed, found, largest, temperature,
    top_k, top_p, min_p, vocabulary, blocks,
    SIZE: tl.constexpr, UNUSED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The lowest kept logit, the last id of its equals, and how many blocks are listed.

    lowest: of the row's logits, but for -inf. maxima and sums: those of all blocks, as loaded.
    """
    factor = coefficient(temperature)
    scale = shrink(maxima, largest, factor) * MASS_PER_WEIGHT
    masses = tl.where(maxima > float("-inf"), (sums.to(tl.float32) * scale).to(tl.int64), 0)
    total = tl.sum(masses, 0)
    by_number = (top_k > 0) & (top_k < vocabulary)
    low = floor_key(
        maxima, masses, total, lowest, largest, temperature, top_k, top_p, min_p, by_number,
        blocks, UNUSED,
    )  # fmt: skip
    floor = value(low, UNUSED)
    count = list_blocks(maxima, floor, listed, SIZE)
    number = collect(logits, listed, count, floor, vocabulary, found, TILE)
    if number <= ROOM:
        cut, last = cut_by_rank(
            found, number, total, largest, factor, top_k, top_p, min_p, by_number
        )
    else:
        cut, last = cut_by_search(
            logits, all_maxima, listed, count, total, largest, factor, low,
            top_k, top_p, min_p, by_number, vocabulary, UNUSED, TILE,
        )  # fmt: skip
    return cut, last, count


@triton.jit
def cut_by_search(
    logits, maxima, listed, count, total, largest, factor, low,
    top_k, top_p, min_p, by_number, vocabulary, UNUSED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The cut among any number of logits of the listed blocks; `low` is the floor's key."""
    number = total * 0 + vocabulary
    high = key_at_least(largest, UNUSED) + 1
    if by_number | (min_p > 0.0):
        numbers, totals = measure(
            logits, maxima, listed, count, largest, factor, vocabulary,
            low + tl.zeros([TRIES], tl.int64), UNUSED, TILE,
        )  # fmt: skip
        number = tl.max(numbers, 0)
        total = tl.max(totals, 0)
    # How many logits are above the key, and how many of those at it are kept.
    above = number * 0
    equals = number
    if by_number & (number > top_k):
        low, number, total, above, mass_above = narrow(
            logits, maxima, listed, count, largest, factor, vocabulary,
            low, high, number, total, top_k.to(tl.int64), False, UNUSED, TILE,
        )  # fmt: skip
        equals = top_k - above
        if equals < number - above:
            total = mass_above + equals * mass_of(low, largest, factor, UNUSED)
    if top_p < 1.0:
        wanted = mass_wanted(total, top_p)
        cut, number_cut, _, above_cut, mass_above = narrow(
            logits, maxima, listed, count, largest, factor, vocabulary,
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
    found,
    cuts,
    lasts,
    counts,
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
    many of the lowest bits of float32 the type of the logits leaves 0. counts: of listed blocks
    that are left to `restrict_kernel`.
    """
    row = tl.program_id(0)
    block = tl.arange(0, SIZE)
    part = tl.arange(0, PARTS)
    logits += row.to(tl.int64) * stride
    maxima += row * blocks
    sums += row * blocks
    listed += row * blocks
    own = tl.load(maxima + block, block < blocks, other=float("-inf"))
    largest = tl.max(tl.where(own != own, float("inf"), own), 0)
    temperature = load_temperature(temperatures, row)
    top_k = tl.load(top_ks + row).to(tl.int32)
    top_p = tl.load(top_ps + row)
    min_p = tl.load(min_ps + row)
    wanted = ((top_k > 0) & (top_k < vocabulary)) | (top_p < 1.0) | (min_p > 0.0)
    cut = temperature * 0.0 + float("-inf")
    last = top_k * 0 + LARGEST_ID
    count = top_k * 0
    if wanted & (temperature > 0.0) & (tl.abs(largest) < float("inf")):
        total = tl.load(sums + block, block < blocks, other=0)
        lowest = tl.load(lows + row * parts + part, part < parts, other=float("inf"))
        cut, last, count = find_cut(
            logits, maxima, own, total, tl.min(lowest, 0), listed, found + row * ROOM, largest,
            temperature, top_k, top_p, min_p, vocabulary, blocks, SIZE, UNUSED, TILE,
        )  # fmt: skip
        if count <= FEW_BLOCKS:
            tl.debug_barrier()  # other threads have read what is overwritten
            factor = coefficient(temperature)
            for start in range(0, count, TILE):
                restrict(
                    logits, maxima, sums, listed, start, count, factor, cut, last, vocabulary, TILE
                )
            count = 0
    tl.store(cuts + row, cut)
    tl.store(lasts + row, last)
    tl.store(counts + row, count)


@triton.jit
def restrict(
    logits, maxima, sums, listed, start, count, factor, cut, last, vocabulary, TILE: tl.constexpr
):
    """What is left of some listed blocks, in the place of what `summarize_kernel` found."""
    x, token, block = load_tile(logits, listed, start, count, vocabulary, TILE)
    x = tl.where(is_kept(x, token, cut, last), x, float("-inf"))
    largest = tl.max(x, 1)
    inside = start + tl.arange(0, TILE) < count
    tl.store(maxima + block, largest, inside)
    tl.store(sums + block, sum_of_weights(x, largest, factor), inside)


@triton.jit
def restrict_kernel(
    logits,
    maxima,
    sums,
    listed,
    cuts,
    lasts,
    counts,
    temperatures,
    stride,
    vocabulary,
    blocks,
    TILE: tl.constexpr,
):
    """The listed blocks of rows of which `cut_kernel` left many, by all programs of a row in turn.

    Blocks that are not listed are below the cut, and known by that.
    """
    row = tl.program_id(1)
    count = tl.load(counts + row)
    start = tl.program_id(0) * TILE
    if start < count:
        cut = tl.load(cuts + row)
        last = tl.load(lasts + row)
        factor = coefficient(load_temperature(temperatures, row))
        for begin in range(start, count, tl.num_programs(0) * TILE):
            restrict(
                logits + row.to(tl.int64) * stride, maxima + row * blocks, sums + row * blocks,
                listed + row * blocks, begin, count, factor, cut, last, vocabulary, TILE,
            )  # fmt: skip
