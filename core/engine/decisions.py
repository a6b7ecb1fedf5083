"""Why each request was admitted, kept waiting, preempted, parked or refused, and by whom."""

from collections import deque
from enum import StrEnum
from typing import NamedTuple

CORE = "core"


class Action(StrEnum):
    """What was decided."""

    ARRIVE = "arrive"
    ADMIT = "admit"
    WAIT = "wait"
    PARK = "park"
    WAKE = "wake"
    PREEMPT = "preempt"
    DEGRADE = "degrade"
    REJECT = "reject"
    FINISH = "finish"
    FAIL = "fail"
    FAULT = "fault"


class Decision(NamedTuple):
    """One decision. `time` is the engine's clock, `step` the step it was made for.

    request: its id; empty for what concerns a plugin, such as a fault.
    """

    time: float
    step: int
    request: str
    action: Action
    reason: str
    plugin: str


class DecisionLog:
    """The last decisions, oldest dropped first."""

    def __init__(self, capacity: int) -> None:
        self._ring: deque[Decision] = deque(maxlen=capacity)
        self._last_wait: tuple[str, str] | None = None

    def add(self, decision: Decision) -> None:
        """Record one decision; a request that waits on for the same reason is recorded once."""
        if decision.action is Action.WAIT:
            wait = (decision.request, decision.reason)
            if wait == self._last_wait:
                return
            self._last_wait = wait
        self._ring.append(decision)

    def of(self, request: str) -> list[Decision]:
        """All that is still known of one request, oldest first."""
        return [decision for decision in self._ring if decision.request == request]

    def __len__(self) -> int:
        return len(self._ring)
