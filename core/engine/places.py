"""Where waiting requests stand in the order, for whoever asks; planning does not need it."""

import math
from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple

from jackfield.core.engine.node import Leaf, Node, leaf_of
from jackfield.core.engine.request import Request
from jackfield.core.engine.tree import WaitingTree

NEAR = 128
LOOKED_AT = 1_000
"""Further behind nobody's place is counted, so that asking costs the steps little."""


class Hold(NamedTuple):
    """A class that is held back: until when, by the engine's clock, and by which plugin."""

    until: float
    plugin: str


class Place(NamedTuple):
    """Of one waiting request. number: 1 = next, None = not counted. hold: what keeps it back."""

    request: Request
    number: int | None
    hold: Hold | None


def places(tree: WaitingTree, chosen: Collection[Request], now: float) -> Iterator[Place]:
    """Of these waiting requests: by the order as the ranks are now, then those not counted.

    An estimate: ranks change with every charge, and the valve and `pick` may overtake.
    """
    if not chosen:
        return
    tree.head(now)  # brings the order up to date
    left = dict.fromkeys(chosen)
    root = list(leaf_of(next(iter(left))).path())[-1]
    for number, request in enumerate(islice(_in_order(root), LOOKED_AT), 1):
        if request in left:
            del left[request]
            yield Place(request, number, None)
            if not left:
                return
    holds: dict[Leaf, Hold | None] = {}
    for request in left:
        leaf = leaf_of(request)
        if leaf not in holds:
            holds[leaf] = _hold(leaf, now)
        yield Place(request, None, holds[leaf])


def _in_order(node: Node) -> Iterator[Request]:
    if isinstance(node, Leaf):
        near = node.queue.first(NEAR)  # most callers ask for no more
        yield from near
        if len(near) == NEAR:
            yield from node.queue.first(LOOKED_AT)[NEAR:]
        return
    for child in node.order.first(LOOKED_AT):
        yield from _in_order(child)


def _hold(leaf: Leaf, now: float) -> Hold | None:
    """The longest of what the plugins say of its classes."""
    found = [
        Hold(node.above.eligible_at(node.state, now), node.above.name)
        for node in leaf.path()
        if node.parent is not None and node.above.shapes
    ]
    longest = max(found, default=Hold(-math.inf, ""))
    return longest if longest.until > now else None
