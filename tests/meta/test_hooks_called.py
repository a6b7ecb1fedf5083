"""Every hook of a scheduler plugin, and every method of a discipline, is called by the loop."""

from collections import Counter
from collections.abc import Hashable, Sequence
from inspect import isfunction
from typing import Any

import pytest

from jackfield.core.api import (
    ClassState,
    Discipline,
    Event,
    LoadView,
    PlanBuilder,
    PolicyConfig,
    Quota,
    QuotaView,
    Rank,
    RequestView,
    SamplingParams,
    SchedulerHooks,
    Shape,
    StepView,
    Verdict,
    VictimView,
    Work,
)
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, context_for, make_engine, request, run


class Orders(Discipline[int]):
    """Says what the base class says, and checks what it is given."""

    lookahead = 4

    def __init__(self, calls: Counter[str], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls = calls

    def classify(self, request: RequestView) -> Hashable:
        self.calls["classify"] += 1
        return request.context.tenant

    def key(self, request: RequestView, now: float) -> Rank:
        self.calls["key"] += 1
        return super().key(request, now)

    def rank(self, cls: ClassState[int], now: float) -> Rank:
        self.calls["rank"] += 1
        assert isinstance(cls, ClassState)
        return super().rank(cls, now)

    def eligible_at(self, cls: ClassState[int], now: float) -> float:
        self.calls["eligible_at"] += 1
        return super().eligible_at(cls, now)

    def pick(self, heads: Sequence[RequestView], now: float) -> int:
        self.calls["pick"] += 1
        assert 2 <= len(heads) <= self.lookahead
        return super().pick(heads, now)

    def charge(self, cls: ClassState[int], work: Work) -> None:
        self.calls["charge"] += 1
        assert sum(work) > 0

    def activate(self, cls: ClassState[int], active_min: int | None) -> None:
        self.calls["activate"] += 1
        cls.state = active_min or 0

    def admitted(self, cls: ClassState[int], request: RequestView) -> None:
        self.calls["admitted"] += 1
        assert cls.running > 0

    def left(self, cls: ClassState[int], request: RequestView) -> None:
        self.calls["left"] += 1
        assert self.calls["left"] <= self.calls["admitted"]

    def keep(self, request: RequestView, now: float) -> Rank:
        self.calls["keep"] += 1
        return super().keep(request, now)


class Limits:
    """Has no objection to anything, and checks what it is given."""

    def __init__(self, calls: Counter[str]) -> None:
        self.calls = calls

    def admit(self, requests: Sequence[RequestView], load: LoadView) -> Sequence[Verdict]:
        self.calls["admit"] += 1
        assert isinstance(load, LoadView)
        return [Verdict.accept() for _ in requests]

    def shape(self, step: StepView) -> Shape:
        self.calls["shape"] += 1
        assert isinstance(step, StepView)
        return Shape()

    def quota(self, plan: QuotaView) -> Quota:
        self.calls["quota"] += 1
        assert all(prefill.need > 0 for prefill in plan.prefills)
        return {prefill.request.handle: prefill.need for prefill in plan.prefills}

    def observe(self, events: Sequence[Event]) -> None:
        self.calls["observe"] += 1
        assert all(isinstance(event, Event) for event in events)


class Chooses(Limits):
    """Beside that, chooses whom to preempt; the disciplines are not asked then."""

    def victims(self, shortage: VictimView) -> Sequence[int]:
        self.calls["victims"] += 1
        assert shortage.need > 0
        return [candidate.handle for candidate in reversed(shortage.candidates)]

    def plan(self, step: StepView, planner: PlanBuilder) -> None:
        self.calls["plan"] += 1
        assert planner.tokens_left > 0


def public(cls: type[Any]) -> set[str]:
    return {name for name, each in vars(cls).items() if isfunction(each) and name[0] != "_"}


@pytest.fixture
def calls() -> Counter[str]:
    return Counter()


def live(calls: Counter[str], advisor: Limits) -> None:
    """Three requests that outgrow the pool together, so that some are preempted.

    An assertion that fails inside a policy is contained, and logged.
    """
    sizes, clock = Sizes(num_blocks=8, hook_budget=60.0), ManualClock()
    context = context_for(sizes, clock)
    levels = [Orders(calls, PolicyConfig(), context) for _ in range(2)]
    engine = make_engine(sizes, disciplines=levels, advisors={"limits": advisor}, clock=clock)
    params = SamplingParams(temperature=0, max_tokens=16)
    for name in "abc":
        engine.add(request(name, range(6), params))
    assert all(len(answer.tokens) == 16 for answer in run(engine).values())
    assert engine.metrics.preemptions > 0


def test_all_methods_of_a_discipline(
    calls: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    live(calls, Limits(calls))
    assert set(calls) >= public(Discipline)
    assert caplog.messages == []


def test_all_hooks_of_an_advisor(calls: Counter[str], caplog: pytest.LogCaptureFixture) -> None:
    live(calls, Chooses(calls))
    assert set(calls) >= public(SchedulerHooks)
    assert caplog.messages == []
