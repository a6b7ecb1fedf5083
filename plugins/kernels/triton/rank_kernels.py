"""The cut among few logits: they are copied side by side, and each is compared with all others."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.narrow_kernels import MASS_ONE, load_tile, unordered
from jackfield.plugins.kernels.triton.sample_kernels import in_order, index_of, shrink

ROOM: tl.constexpr = tl.constexpr(256)
"""Logits that are few. It is part of what decides a draw."""
BESIDE: tl.constexpr = tl.constexpr(16)
"""Those that all are compared with at once."""
BEHIND_ALL: tl.constexpr = tl.constexpr(-(2**63))
BEFORE_ALL: tl.constexpr = tl.constexpr(2**63 - 1)


@triton.jit
def collect(logits, listed, count, floor, vocabulary, found, TILE: tl.constexpr):
    """Writes down, as `in_order` gives them, the logits of listed blocks that reach the floor.

    Returns how many; a number above ROOM only says that there are too many. Each listed block has
    at least one.
    """
    number = tl.where(count > ROOM, count, 0)
    start = count * 0
    while (start < count) & (number <= ROOM):
        x, token, _ = load_tile(logits, listed, start, count, vocabulary, TILE)
        chosen = (x >= floor).to(tl.int32)
        in_block = tl.sum(chosen, 1)
        before = number + tl.cumsum(in_block, 0) - in_block
        place = before[:, None] + tl.cumsum(chosen, 1) - 1
        tl.store(found + place, in_order(x, token), (chosen > 0) & (place < ROOM))
        number += tl.sum(in_block, 0)
        start += TILE
    tl.debug_barrier()  # other threads read them
    return number


@triton.jit
def mass_wanted(total, top_p):
    """The least mass that reaches a share of the total."""
    return tl.maximum(tl.ceil(total.to(tl.float64) * top_p.to(tl.float64)).to(tl.int64), 1)


@triton.jit
def masses_of(place, largest, factor):
    """Of logits as `in_order` gives them; what is behind all has none."""
    mass = (shrink(unordered(place >> 32), largest, factor) * MASS_ONE).to(tl.int64)
    return tl.where(place > BEHIND_ALL, mass, 0)


@triton.jit
def cut_by_rank(found, number, total, largest, factor, top_k, top_p, min_p, by_number):
    """The lowest kept logit, and its id: the last that is kept.

    found: all that filters but for top_k and top_p keep, or that top_p alone could. total: the
    mass of all logits of the row, which counts if there is no other filter than top_p.
    """
    index = tl.arange(0, ROOM)
    place = tl.load(found + index, index < number, other=BEHIND_ALL)
    mass = masses_of(place, largest, factor)
    rank = tl.zeros([ROOM], tl.int32)
    mass_before = tl.zeros([ROOM], tl.int64)
    for start in range(0, number, BESIDE):
        index_beside = start + tl.arange(0, BESIDE)
        beside = tl.load(found + index_beside, index_beside < number, other=BEHIND_ALL)
        is_before = beside[None, :] > place[:, None]
        rank += tl.sum(is_before.to(tl.int32), 1)
        masses = masses_of(beside, largest, factor)[None, :]
        mass_before += tl.sum(tl.where(is_before, masses, 0), 1)
    among = rank < tl.where(by_number, tl.minimum(top_k, number), number)
    if by_number | (min_p > 0.0):
        total = tl.sum(tl.where(among, mass, 0), 0)
    wanted = tl.where(top_p < 1.0, mass_wanted(total, top_p), BEFORE_ALL)
    kept = among & (mass_before < wanted)
    last = tl.min(tl.where(kept & (index < number), place, BEFORE_ALL), 0)
    return unordered(last >> 32), index_of(last)
