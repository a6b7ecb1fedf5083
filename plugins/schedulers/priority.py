"""Priorities: a lower number goes first, always or until the others have waited long enough."""

from collections.abc import Hashable, Sequence
from math import floor

from pydantic import Field

from jackfield.core.api import (
    Claim,
    ClassState,
    Discipline,
    Fcfs,
    PolicyConfig,
    PolicyContext,
    Rank,
    RequestView,
    StrictPriority,
    WorkConserving,
)

SLICES = 4
"""Classes per step of priority when requests age: how finely waiting time counts."""
LAST = 1e18
"""Rank of the class that takes what does not fit into classes of its own."""


class PriorityConfig(PolicyConfig):
    """ageing: seconds of waiting that make up for one step of priority; none: nothing does.

    preempt_margin: a waiting request takes the seat of a running one whose priority is worse by
    more than this; none: whoever runs keeps its seat while there is memory.
    """

    ageing: float | None = Field(None, gt=0)
    preempt_margin: float | None = Field(None, ge=0)


class Priority(Discipline[None]):
    """One class per priority number, the lower first; the next level orders inside it.

    Guarantee: nobody of a worse priority is admitted while a better one waits, except through the
    starvation valve. With `ageing` a request of priority p counts as one of priority 0 that came
    p * ageing seconds later: it is passed only by what comes less than that (and a quarter of
    `ageing`, since time is cut into slices) after it. With `preempt_margin` a better request gets
    a worse one's seat in the next step.

    Each slice has a stack of its own below it, so with ageing put a discipline that remembers,
    such as fairness, above this one.

    Source: priority queueing; that ageing with one slope for all needs no clock is in Kleinrock,
    Queueing Systems II, 1976 (time-dependent priorities).
    """

    Config = PriorityConfig

    def __init__(self, config: PriorityConfig, context: PolicyContext) -> None:
        super().__init__(config, context)
        self._ageing = config.ageing
        margin = config.preempt_margin
        per_step = 1 if config.ageing is None else SLICES
        self.preempt_margin = None if margin is None else margin * per_step

    @property
    def claims(self) -> Sequence[Claim]:
        """With ageing it is not strict."""
        strict = () if self._ageing is not None else (StrictPriority(),)
        return (*strict, Fcfs(), WorkConserving())

    def classify(self, request: RequestView) -> Hashable:
        if self._ageing is None:
            return request.context.priority
        return floor(SLICES * (request.arrival / self._ageing + request.context.priority))

    def rank(self, cls: ClassState[None], now: float) -> Rank:
        return cls.key if isinstance(cls.key, int) else LAST
