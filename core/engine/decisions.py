"""Why each request was admitted, kept waiting, preempted, parked or refused, and by whom."""

from collections import Counter, deque
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

    request: its id; empty for what concerns a plugin, such as a fault. reason: a sentence. code:
    one of `Code`, or of a plugin's verdict. answer: its index, where a request has several.
    """

    time: float
    step: int
    request: str
    action: Action
    reason: str
    plugin: str
    code: str
    answer: int = 0


class DecisionLog:
    """The last decisions, oldest dropped first. counts: recorded ones by action and plugin."""

    def __init__(self, capacity: int) -> None:
        self._ring: deque[Decision] = deque(maxlen=capacity)
        self._waits: dict[tuple[str, int], str] = {}
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, decision: Decision) -> None:
        """Record one decision; a request that waits on for the same reason is recorded once."""
        if decision.action is Action.WAIT:
            if self.waits_on(decision.request, decision.answer, decision.code):
                return
            self._waits[decision.request, decision.answer] = decision.code
        elif self._waits:
            self._waits.pop((decision.request, decision.answer), None)
        self.counts[decision.action, decision.plugin] += 1
        self._ring.append(decision)

    def waits_on(self, request: str, answer: int, code: str) -> bool:
        """Whether the last that was recorded of the answer is that it waits for this."""
        return self._waits.get((request, answer)) == code

    def of(self, request: str) -> list[Decision]:
        """All that is still known of one request, oldest first."""
        return [decision for decision in self._ring if decision.request == request]

    def __len__(self) -> int:
        return len(self._ring)
