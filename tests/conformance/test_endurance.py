"""Long lives of every stack: 60 000 steps in all, and 100 000 of each with the deep profile."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import settings

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    RequestView,
    Shape,
    Verdict,
)
from jackfield.core.engine.schedule import Scheduler
from jackfield.core.host.discover import discover
from jackfield.core.testing.endurance import endure
from jackfield.core.testing.law_items import find

TOTAL, MOST = 60_000, 100_000
ADVISORS = ["chunked_prefill", "long_prefill_throttle", "memory_reserve", "queue_limit"]
TOGETHER = [
    ["priority", "fcfs"],
    ["priority", "fairness", "fcfs"],
    ["concurrency_cap", "rate_order", "sjf"],
    ["fairness", "mlfq", "lpm", *ADVISORS, "lifo"],
    ["priority", "fairness", "edf", *ADVISORS, "slo_admission", "rate_limit", "cheapest_recompute"],
]
SETTINGS: dict[str, dict[str, Any]] = {
    "concurrency_cap": {"cap": 2},
    "priority": {"preempt_margin": 0},
    "queue_limit": {"requests": 20},
    "rate_limit": {"limits": {"*": {"tokens_per_minute": 600}}},
    "slo_admission": {"first_token": 2.0},
}
STACKS = [[one.name] for one in discover("schedulers").usable] + TOGETHER
Plugins = Callable[[PolicyContext], list[Any]]


def steps_of_each() -> int:
    assert settings.default is not None
    factor = settings.default.max_examples / 100
    return min(int(TOTAL / len(STACKS) * factor), MOST)


def plugins(names: Sequence[str]) -> Plugins:
    made = [(find(name), SETTINGS.get(name, {})) for name in names]
    return lambda context: [cls(cls.Config(**section), context) for cls, section in made]


@pytest.mark.parametrize("names", STACKS, ids="+".join)
def test_it_moves_and_forgets(names: list[str]) -> None:
    lived = endure(plugins(names), steps_of_each())
    assert lived.steps >= steps_of_each() and lived.admissions > 500


def test_the_load_is_more_than_can_be_served() -> None:
    """Else nothing of this would be tried."""
    assert endure(plugins(["fcfs"]), 2000).preemptions > 20
    assert endure(plugins(["queue_limit"]), 2000).rejections > 5


def test_every_installed_scheduler_is_in_a_stack() -> None:
    for found in discover("schedulers").usable:
        assert [found.name] in STACKS


class Hoards(Discipline[None]):
    """Keeps every request that it ever saw."""

    def __init__(self, config: Any, context: PolicyContext) -> None:
        super().__init__(config, context)
        self.seen: list[RequestView] = []

    def key(self, request: RequestView, now: float) -> float:
        self.seen.append(request)
        return request.arrival


def test_what_grows_is_found() -> None:
    with pytest.raises(AssertionError, match="the idle engine grows"):
        endure(lambda context: [Hoards(PolicyConfig(), context)], 2000)


class Blocks:
    """A plan that plans nothing, and whose stalls nobody fills."""

    def shape(self, step: Any) -> Shape:
        return Shape(new_seqs=0)


def test_what_stands_still_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "_could_run", lambda self, now: False)
    with pytest.raises(AssertionError, match="nothing moved"):
        endure(lambda context: [Blocks()], 2000)


class Forever(Discipline[None]):
    """Holds everybody back; only the engine's own patience ends it."""

    def classify(self, request: RequestView) -> str:
        return "all"

    def eligible_at(self, cls: ClassState[None], now: float) -> float:
        return float("inf")


class Later:
    """Nobody is ever let in, nor refused."""

    def admit(self, requests: Sequence[RequestView], load: Any) -> list[Verdict]:
        return [Verdict.defer(load.now + 1000.0) for _ in requests]


@pytest.mark.parametrize("waits", [Forever, Later])
def test_who_is_held_back_for_ever_ends_too(waits: type[Any]) -> None:
    def make(context: PolicyContext) -> list[Any]:
        return [Forever(PolicyConfig(), context) if waits is Forever else Later()]

    assert endure(make, 400).steps >= 400
