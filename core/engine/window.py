"""The choice within the first requests of a leaf, for disciplines that look ahead."""

from typing import NamedTuple

from jackfield.core.engine.node import Leaf
from jackfield.core.engine.request import Request

BYPASSES = 8
"""A request that was passed over so many times the window's size is taken without asking."""


class Choice(NamedTuple):
    """Who goes next, and who is passed over if it does."""

    request: Request
    passed: list[Request]


class Windows:
    """The choices of this step, one per leaf; made anew when a leaf's queue changes."""

    def __init__(self) -> None:
        self._choices: dict[Leaf, Choice] = {}

    def clear(self) -> None:
        """A step begins, or everybody was placed anew."""
        self._choices.clear()

    def changed(self, leaf: Leaf) -> None:
        """The leaf's queue is another one."""
        if self._choices:
            self._choices.pop(leaf, None)

    def first(self, leaf: Leaf, now: float) -> Request | None:
        """Who goes next in the leaf."""
        level = leaf.branch.level
        if not level.lookahead:
            return leaf.queue.peek()
        choice = self._choices.get(leaf)
        if choice is None:
            choice = _choose(leaf, leaf.queue.first(level.lookahead), now)
            self._choices[leaf] = choice
        return choice.request

    def admitted(self, leaf: Leaf, request: Request) -> None:
        """Count who was passed over, if it was the leaf's choice that got a seat."""
        choice = self._choices.pop(leaf, None)
        if choice is not None and choice.request is request:
            for other in choice.passed:
                leaf.passed[other] = leaf.passed.get(other, 0) + 1
        leaf.passed.pop(request, None)


def _choose(leaf: Leaf, heads: list[Request], now: float) -> Choice:
    level = leaf.branch.level
    limit = BYPASSES * level.lookahead
    index = 0
    if len(heads) > 1:
        due = (i for i, one in enumerate(heads) if leaf.passed.get(one, 0) >= limit)
        forced = next(due, None)
        views = tuple(one.view for one in heads)
        index = level.pick(views, now) if forced is None else forced
    return Choice(heads[index], heads[:index])
