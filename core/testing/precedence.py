"""Who may be admitted before whom: claims of strict priority, arrival and deadline."""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from jackfield.core.api import Edf, Fcfs, StrictPriority
from jackfield.core.engine.request import Request
from jackfield.core.testing.inspectors import Inspector

if TYPE_CHECKING:
    from jackfield.core.testing.watch import Watch

Passes = Callable[["Watch", Request, Request], str | None]
"""Of one who was admitted and one who waits on: why that is wrong, or None."""


class Precedence(Inspector):
    """After each step, compares all who were admitted in it with all who could have been."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self._candidates: list[Request] = []

    def before(self, watch: "Watch") -> None:
        engine, now = watch.engine, watch.now
        tree, waiting = engine.lifecycle.tree, engine.lifecycle.valve.requests()
        free = [one for one in waiting if tree.may_be_admitted(one, now)]
        self._candidates = [*free, *engine._arrivals]

    def after(self, watch: "Watch") -> None:
        if watch.plan is None:
            return
        tree, now = watch.engine.lifecycle.tree, watch.now
        joined = {join.handle for join in watch.plan.joins}
        admitted = [one for one in self._candidates if one.handle in joined]
        left = [one for one in self._candidates if tree.may_be_admitted(one, now)]
        for one in admitted:
            for other in left:
                wrong = self._passes(watch, one, other)
                assert wrong is None, f"{one.id} was admitted and {other.id} waits on: {wrong}"


def passes(claim: StrictPriority | Fcfs | Edf) -> Passes:
    """What the claim forbids."""
    if isinstance(claim, StrictPriority):
        return _by_priority
    if isinstance(claim, Edf):
        return lambda _, one, other: _by_deadline(claim.laxity, one, other)
    within_class = claim.within == "class"
    return lambda watch, one, other: _by_arrival(watch, one, other, within_class)


def _by_priority(watch: "Watch", one: Request, other: Request) -> str | None:
    mine, theirs = one.context.priority, other.context.priority
    return f"its priority {theirs} is better than {mine}" if theirs < mine else None


def _by_deadline(laxity: float, one: Request, other: Request) -> str | None:
    mine, theirs = _due(one, laxity), _due(other, laxity)
    return f"it is due at {theirs:g}, before {mine:g}" if theirs < mine else None


def _due(request: Request, laxity: float) -> float:
    deadline = request.context.deadline
    if deadline is not None:
        return deadline
    return inf if laxity == inf else request.arrival + laxity


def _by_arrival(watch: "Watch", one: Request, other: Request, within_class: bool) -> str | None:
    if other.handle > one.handle:
        return None
    level = watch.engine.lifecycle.tree.levels[0]
    if within_class and level.classify(one) != level.classify(other):
        return None
    return f"it arrived earlier, at {other.arrival:g} and not {one.arrival:g}"
