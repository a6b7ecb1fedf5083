"""Chooses each token's experts by their logits, one program per token."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous

NO_NUMBER: tl.constexpr = tl.constexpr(-3.0e38)
"""What a score that is none is worth: less than any other."""
FORBIDDEN: tl.constexpr = tl.constexpr(-3.3e38)
"""And an expert of a group that was not chosen: even less, but it is an expert."""
TINY: tl.constexpr = tl.constexpr(1e-20)
"""Keeps a sum of weights that are all 0 from dividing by 0."""


@triton.jit
def _scores(logits, SIGMOID: tl.constexpr):
    if SIGMOID:
        return tl.sigmoid(logits)
    powers = tl.exp(logits - tl.max(logits, 0))
    return powers / tl.sum(powers, 0)


@triton.jit
def _inside_best_groups(
    worth,
    expert,
    SIZE: tl.constexpr,
    GROUPS: tl.constexpr,
    PADDED: tl.constexpr,
    CHOSEN: tl.constexpr,
    BEST_TWO: tl.constexpr,
):
    """Experts of other groups are worth less than any. SIZE: experts of a group."""
    group = tl.arange(0, PADDED)
    own = (expert // SIZE)[None, :] == group[:, None]
    worths = tl.where(own, worth[None, :], float("-inf"))
    best = tl.max(worths, 1)
    if BEST_TWO:
        # Only one of several that are worth the same is left out.
        first = tl.argmax(worths, 1)
        rest = tl.where(expert[None, :] == first[:, None], float("-inf"), worths)
        best += tl.max(rest, 1)
    # Sums of what is no number must not be less than any number is.
    best = tl.where(group < GROUPS, tl.maximum(best, NO_NUMBER), float("-inf"))
    inside = expert < 0
    for _index in tl.static_range(CHOSEN):
        chosen = tl.argmax(best, 0)
        inside |= expert // SIZE == chosen
        best = tl.where(group == chosen, float("-inf"), best)
    return tl.where(inside, worth, FORBIDDEN)


@triton.jit
def route_kernel(
    logits,
    bias,
    slots,
    ids,
    weights,
    logits_stride,
    EXPERTS: tl.constexpr,
    PADDED: tl.constexpr,
    TOP: tl.constexpr,
    PADDED_TOP: tl.constexpr,
    GROUPS: tl.constexpr,
    PADDED_GROUPS: tl.constexpr,
    CHOSEN: tl.constexpr,
    BEST_TWO: tl.constexpr,
    SIGMOID: tl.constexpr,
    NORMALIZE: tl.constexpr,
    SCALE: tl.constexpr,
    BIASED: tl.constexpr,
    SLOTTED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Of experts that are worth the same the first. What PADDED... are of is a power of two there.

    CHOSEN: groups. BEST_TWO: whether a group is worth its two best scores. BIASED and SLOTTED: what
    else there is.
    """
    token = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, PADDED)
    inside = expert < EXPERTS
    wait_for_previous(EARLY)
    found = tl.load(logits + token * logits_stride + expert, inside, other=float("-inf"))
    scores = _scores(found.to(tl.float32), SIGMOID)
    worth = scores
    if BIASED:
        worth += tl.load(bias + expert, inside, other=0.0)
    worth = tl.where(worth == worth, worth, NO_NUMBER)
    if GROUPS > 1:
        worth = _inside_best_groups(
            worth, expert, EXPERTS // GROUPS, GROUPS, PADDED_GROUPS, CHOSEN, BEST_TWO
        )
    worth = tl.where(inside, worth, float("-inf"))
    place = tl.arange(0, PADDED_TOP)
    chosen = tl.zeros([PADDED_TOP], tl.int32)
    shares = tl.zeros([PADDED_TOP], tl.float32)
    for index in tl.static_range(TOP):
        best = tl.argmax(worth, 0)
        chosen = tl.where(place == index, best, chosen)
        shares = tl.where(place == index, tl.sum(tl.where(expert == best, scores, 0.0), 0), shares)
        worth = tl.where(expert == best, float("-inf"), worth)
    if NORMALIZE:
        shares /= tl.sum(shares, 0) + TINY
    if SLOTTED:
        chosen = tl.where(tl.load(slots + token) < 0, -1, chosen)
    at = token * TOP + place
    tl.store(ids + at, chosen.to(tl.int64), place < TOP)
    tl.store(weights + at, shares * SCALE, place < TOP)
