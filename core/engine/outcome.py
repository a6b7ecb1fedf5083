"""What planning a step did beside granting."""

from dataclasses import dataclass, field
from typing import NamedTuple

from jackfield.core.engine.followers import Leader
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request


class Preemption(NamedTuple):
    """Who lost its seat, who chose it, and why."""

    request: Request
    plugin: str
    reason: str = "memory is short"
    code: Code = Code.MEMORY_SHORT


class Admission(NamedTuple):
    """Who got a seat, by what, and in whose order."""

    request: Request
    by: Code
    plugin: str


class Detour(NamedTuple):
    """Who is set aside instead of being admitted: until something is there that saves computing.

    until: engine clock. leader: who computes it; None = it is loaded from a tier.
    """

    request: Request
    code: Code
    reason: str
    until: float
    leader: Leader | None = None


@dataclass(slots=True)
class Outcome:
    """For the log, the events and the queues.

    waits: why the head of the queue was not admitted; None when nobody waits on. head: who that
    is, when it may be another one than before. recomputed:
    granted positions that were computed before. stalled: a policy left the step empty although
    somebody could run; the core has planned it.
    """

    admitted: list[Admission] = field(default_factory=list)
    preempted: list[Preemption] = field(default_factory=list)
    detours: list[Detour] = field(default_factory=list)
    waits: Code | None = None
    head: Request | None = None
    recomputed: int = 0
    stalled: bool = False
