"""What is looked at before and after each step of an engine under watch: one law each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jackfield.core.engine.request import Request, Status

if TYPE_CHECKING:
    from jackfield.core.testing.watch import Watch

PATIENCE = 64
"""Steps in which a policy that plans by hand may leave the oldest out."""


class Inspector:
    """Base: looks at nothing. Methods raise `AssertionError` when the law is broken."""

    def before(self, watch: "Watch") -> None:
        """Called right before each step."""

    def after(self, watch: "Watch") -> None:
        """Called right after each step; `watch.plan` is what it submitted, None = nothing."""

    def end(self, watch: "Watch") -> None:
        """Called once, when all have ended."""


class OldestComputes(Inspector):
    """The oldest running request computes something before all others are through."""

    def __init__(self) -> None:
        self._oldest: Request | None = None
        self._steps = 0
        self._allowed = 0

    def after(self, watch: "Watch") -> None:
        running = watch.engine.lifecycle.planner.running
        oldest = running[min(running)] if running else None
        granted = watch.plan is not None and oldest is not None and any(
            part.handle == oldest.handle for part in watch.plan.slices
        )
        if oldest is not self._oldest or granted or oldest is None:
            self._oldest, self._steps = oldest, 0
            others = [one for one in running.values() if one is not oldest]
            self._allowed = self.allowance(others)
        elif watch.plan is not None and oldest.total < oldest.limit:
            self._steps += 1
            assert self._steps <= self._allowed, (
                f"{oldest.id} is the oldest that runs; it computed nothing in {self._steps} steps"
            )

    @staticmethod
    def allowance(others: Sequence[Request]) -> int:
        """Steps in which all others have surely ended, if each step computes something."""
        return PATIENCE + sum(one.limit - one.computed for one in others)


class WakesUp(Inspector):
    """Who is parked has a time at which it is looked at again, and is then."""

    def __init__(self) -> None:
        self._due: dict[Request, float] = {}

    def before(self, watch: "Watch") -> None:
        now, gates = watch.now, watch.engine.lifecycle.gates
        self._due = {}
        for request in gates.requests():
            gate = gates.why(request)
            assert gate is not None
            if gate.until <= now:
                self._due[request] = gate.until

    def after(self, watch: "Watch") -> None:
        gates = watch.engine.lifecycle.gates
        for request in gates.requests():
            gate = gates.why(request)
            assert gate is not None
            assert gate.until < float("inf") or request.unseen, (
                f"{request.id} is parked ({gate.reason}) and nothing will ever wake it"
            )
            assert self._due.get(request) != gate.until, f"{request.id} was due and was not woken"
            assert not request.blocks and request.status is Status.PARKED
        if watch.engine.is_idle and watch.engine.has_work:
            assert watch.engine.next_alarm is not None, "somebody waits and nothing will ever move"


class Moves(Inspector):
    """While nobody runs and somebody who is not held back waits, the next step admits somebody."""

    def __init__(self) -> None:
        self._must_move = False

    def before(self, watch: "Watch") -> None:
        engine = watch.engine
        idle = not engine.lifecycle.planner.running and not engine._in_flight
        self._must_move = idle and engine.lifecycle.tree.head(watch.now) is not None

    def after(self, watch: "Watch") -> None:
        assert watch.plan is not None or not self._must_move, (
            "nobody runs, somebody waits who is not held back, and nobody was admitted"
        )


class OnePlace(Inspector):
    """Every request is in exactly one place: not looked at yet, waiting, parked, or running."""

    def after(self, watch: "Watch") -> None:
        engine, lifecycle = watch.engine, watch.engine.lifecycle
        places = [
            *engine._arrivals,
            *lifecycle.valve.requests(),
            *lifecycle.gates.requests(),
            *lifecycle.planner.running.values(),
        ]
        handles = sorted(one.handle for one in places)
        assert len(set(handles)) == len(handles), "a request is in two places"
        known = sorted(one.handle for one in engine.requests())
        assert handles == known, f"{set(handles) ^ set(known)} are in no place, or have ended"
        assert len(lifecycle.tree) == len(lifecycle.valve.requests()), "somebody waits in no class"


class NothingTwice(Inspector):
    """Who lost its seat in a step computes nothing in it, and no one who has ended does."""

    def __init__(self) -> None:
        self._before: dict[Request, int] = {}

    def before(self, watch: "Watch") -> None:
        running = watch.engine.lifecycle.planner.running.values()
        self._before = {one: one.num_preemptions for one in running}

    def after(self, watch: "Watch") -> None:
        if watch.plan is None:
            return
        planned = {part.handle for part in watch.plan.slices}
        for request, preemptions in self._before.items():
            if request.num_preemptions > preemptions:
                assert request.handle not in planned, f"{request.id} lost its seat and computes"


class NoFaults(Inspector):
    """No answer of the policy is out of contract. name: under which its faults are counted."""

    def __init__(self, name: str) -> None:
        self._name = name

    def after(self, watch: "Watch") -> None:
        for guard in watch.engine._policies.guards:
            assert guard.plugin != self._name or not guard.faults, (
                f"{guard.plugin}: {guard.last_fault}"
            )
