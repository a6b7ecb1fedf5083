"""Requests that wait for something else than a seat: parked, without seat or block."""

import math
from collections.abc import Callable
from typing import NamedTuple

from jackfield.core.engine.heap import LazyHeap
from jackfield.core.engine.request import Request
from jackfield.core.engine.tally import Tally

Resume = Callable[[Request], None]


class Gate(NamedTuple):
    """Why a request is parked, who decided it, what happens when it is woken, and since when.

    until: when it is woken at the latest.
    """

    reason: str
    plugin: str
    resume: Resume
    since: float
    until: float = math.inf


class Gates:
    """All parked requests. Each has a time at which it is woken, whatever else happens."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._parked: dict[Request, Gate] = {}
        self._alarms: LazyHeap[Request] = LazyHeap()

    def __len__(self) -> int:
        return len(self._parked)

    def __contains__(self, request: Request) -> bool:
        return request in self._parked

    def park(self, request: Request, gate: Gate, until: float) -> None:
        """Hold the request until somebody wakes it, or until that time."""
        if request not in self._parked:
            self._tally.add(request.context.tenant)
        self._parked[request] = gate._replace(until=until)
        self._alarms.push(request, until)

    def remove(self, request: Request) -> Gate | None:
        """Take the request out without waking it; None if it is not parked."""
        self._alarms.remove(request)
        gate = self._parked.pop(request, None)
        if gate is not None:
            self._tally.drop(request.context.tenant)
        return gate

    def wake(self, request: Request) -> bool:
        """Resume the request now; False if it is not parked."""
        gate = self.remove(request)
        if gate is not None:
            gate.resume(request)
        return gate is not None

    def due(self, now: float) -> list[Request]:
        """Parked requests whose time has come; they stay parked until woken."""
        found = []
        while len(self._alarms) and self._alarms.first_key() <= now:
            request = self._alarms.peek()
            assert request is not None
            self._alarms.remove(request)
            found.append(request)
        return found

    def next_alarm(self) -> float | None:
        """When the next request is due; None when nobody is parked."""
        return self._alarms.first_key() if len(self._alarms) else None

    def why(self, request: Request) -> Gate | None:
        """What the request waits for."""
        return self._parked.get(request)

    def requests(self) -> list[Request]:
        """All parked requests."""
        return list(self._parked)
