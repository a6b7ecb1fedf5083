"""The order of a stack by a plain sort of everybody, each time: what the tree must agree with."""

from collections.abc import Sequence

from jackfield.core.engine.node import Node, leaf_of, path_of
from jackfield.core.engine.request import Request
from jackfield.core.engine.window import BYPASSES


class NaiveOrder:
    """Asks the same levels as the tree about the same classes, and remembers nothing of its own
    but how often somebody was passed over.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._passed: dict[Request, int] = {}

    def next(self, waiting: Sequence[Request], now: float) -> Request | None:
        """Who goes next; None if all are held back."""
        overdue = [one for one in waiting if self._is_overdue(one, now)]
        if overdue:
            return min(overdue, key=lambda one: one.handle)
        free = [one for one in waiting if not _held(one, now)]
        if not free:
            return None
        leaf = leaf_of(min(free, key=lambda one: _path_ranks(one, now)))
        return self._window(free, leaf, now)[0]

    def oldest(self, waiting: Sequence[Request], now: float) -> Request | None:
        """Who waits longest of those that are not held back."""
        overdue = [one for one in waiting if self._is_overdue(one, now)]
        free = overdue or [one for one in waiting if not _held(one, now)]
        return min(free, key=lambda one: one.handle, default=None)

    def admitted(self, request: Request, waiting: Sequence[Request], now: float) -> None:
        """Count who is passed over when the next one is admitted."""
        if self._is_overdue(request, now) or _held(request, now):
            return
        free = [one for one in waiting if not _held(one, now)]
        chosen, passed = self._window(free, leaf_of(request), now)
        if chosen is request and leaf_of(request).branch.level.lookahead:
            for other in passed:
                self._passed[other] = self._passed.get(other, 0) + 1

    def _is_overdue(self, request: Request, now: float) -> bool:
        return _held(request, now) and request.arrival + self._patience <= now

    def _window(
        self, free: Sequence[Request], leaf: Node, now: float
    ) -> tuple[Request, list[Request]]:
        level = leaf.branch.level
        queue = sorted(
            (one for one in free if one.leaf is leaf),
            key=lambda one: (level.key(one, now), one.arrival, one.handle),
        )
        heads = queue[: max(level.lookahead, 1)]
        limit = BYPASSES * level.lookahead
        due = [i for i, one in enumerate(heads) if self._passed.get(one, 0) >= limit]
        index = 0
        if len(heads) > 1:
            index = due[0] if due else level.pick([one.view for one in heads], now)
        return heads[index], heads[:index]


def _held(request: Request, now: float) -> bool:
    return any(
        node.above.shapes and node.above.eligible_at(node.state, now) > now
        for node in path_of(request)[1:]
    )


def _path_ranks(request: Request, now: float) -> list[object]:
    """Ranks from the root down. Classes of equal rank are told apart by the tree only."""
    return [node.rank(now) for node in path_of(request)[1:]]
