"""How running requests stand to each other, and to one that waits: who would go first."""

from collections.abc import Iterable
from typing import Any

from jackfield.core.engine.level import Level
from jackfield.core.engine.node import Leaf, leaf_of, path_of
from jackfield.core.engine.request import Request


def worst_first(requests: Iterable[Request], now: float) -> list[Request]:
    """Running requests, the best to preempt first."""
    ranks: dict[Leaf, tuple[Any, ...]] = {}
    keys = {}
    for request in requests:
        leaf = leaf_of(request)
        if leaf not in ranks:
            ranks[leaf] = tuple(_negative(node.rank(now)) for node in path_of(request)[1:])
        keep = leaf.branch.level.keep(request, now)
        keys[request] = (*ranks[leaf], keep, (-request.handle,))
    return sorted(keys, key=keys.__getitem__)


def displacer(head: Request, leaf: Leaf, now: float) -> Level | None:
    """The level at which a waiting request may take the seat of one of that leaf; or None."""
    for mine, theirs in zip(path_of(head), list(leaf.path())[::-1], strict=False):
        if mine is not theirs:
            level = mine.above
            margin = level.margin()
            if margin is None:
                return None
            lower = _is_lower(mine.rank(now)[0], theirs.rank(now)[0], margin)
            return level if lower else None
    return None


def _negative(rank: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(-value for value in rank)


def _is_lower(rank: float, other: float, margin: float) -> bool:
    """Whether it is lower by more than the margin; ranks may be integers of any size."""
    try:
        return rank + margin < other
    except OverflowError:
        return rank < other
