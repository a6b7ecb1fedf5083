"""Waiting requests that take the seat of a running one of a much worse rank."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest

from jackfield.core.api import ClassState, Discipline, PolicyConfig, Rank, RequestContext, Work
from jackfield.core.engine.decisions import Action
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.conformance import check_scheduler
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request
from jackfield.core.testing.lives import TIGHT, life

LONG = GREEDY.with_(max_tokens=40)
SIZES = Sizes(num_blocks=64, max_seqs=2, share=0.0)


class ByPriority(Discipline[None]):
    """A lower number goes first, and takes seats."""

    preempt_margin = 0.0

    def classify(self, request: Any) -> Hashable:
        return request.context.priority

    def rank(self, cls: ClassState[None], now: float) -> Rank:
        return float(cls.key)  # type: ignore[arg-type]


class Patient(ByPriority):
    """Displaces nobody."""

    preempt_margin = None


class Fair(Discipline[float]):
    """Who was served least goes first; who is behind by more than `margin` tokens takes a seat."""

    margin = 16.0

    @property
    def preempt_margin(self) -> float | None:  # type: ignore[override]
        return self.margin

    def classify(self, request: Any) -> Hashable:
        return request.context.tenant

    def rank(self, cls: ClassState[float], now: float) -> Rank:
        return cls.state or 0.0

    def charge(self, cls: ClassState[float], work: Work) -> None:
        cls.state = (cls.state or 0.0) + work.prefill + work.decode

    def activate(self, cls: ClassState[float], active_min: float | None) -> None:
        cls.state = max(cls.state or 0.0, active_min or 0.0)


def engine_of(policy: type[Discipline[Any]], sizes: Sizes = SIZES) -> Any:
    clock = ManualClock()
    discipline = policy(PolicyConfig(), context_for(sizes, clock))
    return make_engine(sizes, disciplines=[discipline], clock=clock)


def add(engine: Any, name: str, priority: int, length: int = 3, most: int = 40) -> None:
    context = RequestContext(priority=priority)
    params = GREEDY.with_(max_tokens=most)
    engine.add(request(name, [1] * length, params, context=context))


def running(engine: Any) -> list[str]:
    return [one.id for one in engine.lifecycle.planner.running.values()]


def actions(engine: Any, name: str, action: Action) -> list[Any]:
    return [decision for decision in engine.explain(name) if decision.action is action]


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_a_better_priority_gets_its_seat_in_the_next_step(overlap: int) -> None:
    engine = engine_of(ByPriority, replace(SIZES, overlap=overlap))
    add(engine, "old", 5)
    add(engine, "low", 5)
    for _ in range(3):
        engine.step()
    add(engine, "high", 0)
    engine.step()
    engine.check()
    assert running(engine) == ["old", "high"]
    (lost,) = actions(engine, "low", Action.PREEMPT)
    assert lost.plugin == "bypriority" and "high goes first" in lost.reason
    answers = finish(engine)
    assert set(answers.values()) == {40}


def finish(engine: Any, limit: int = 2000) -> dict[str, int]:
    """Tokens of each answer, those of earlier steps included."""
    lengths = {
        one.id: one for members in engine._requests.values() for one in members
    }
    for _ in range(limit):
        if not engine.has_work:
            return {name: len(one.output) for name, one in lengths.items()}
        engine.step()
        engine.check()
    raise AssertionError("it never ends")


def test_an_equal_priority_displaces_nobody() -> None:
    engine = engine_of(ByPriority)
    for name in ("old", "low", "same"):
        add(engine, name, 5)
    for _ in range(10):
        engine.step()
    assert running(engine) == ["old", "low"] and engine.metrics.preemptions == 0


def test_without_a_margin_who_runs_stays() -> None:
    engine = engine_of(Patient)
    for name, priority in (("old", 5), ("low", 5), ("high", 0)):
        add(engine, name, priority)
        engine.step()
    assert running(engine) == ["old", "low"] and engine.metrics.preemptions == 0


def test_the_oldest_is_never_displaced() -> None:
    engine = engine_of(ByPriority, replace(SIZES, max_seqs=1))
    add(engine, "old", 5)
    engine.step()
    add(engine, "high", 0)
    for _ in range(5):
        engine.step()
    assert running(engine) == ["old"]


def test_blocks_are_taken_as_seats_are() -> None:
    """Seats are free, the pool is not."""
    sizes = Sizes(num_blocks=12, block_size=4, max_tokens=64, max_seqs=8, share=0.0)
    engine = engine_of(ByPriority, sizes)
    add(engine, "old", 5, length=12, most=4)
    add(engine, "lower", 9, length=12, most=20)
    add(engine, "low", 5, length=12, most=20)
    engine.step()
    assert running(engine) == ["old", "low", "lower"]
    add(engine, "high", 0, length=11, most=4)
    engine.step()
    assert running(engine) == ["old", "low", "high"], "the worst goes, and only the worst"
    finish(engine)


def test_nobody_is_displaced_for_a_head_that_would_not_fit_then() -> None:
    engine = engine_of(ByPriority, Sizes(num_blocks=12, block_size=4, max_seqs=8, share=0.0))
    add(engine, "old", 5, length=24, most=8)
    add(engine, "low", 5, length=4, most=8)
    for _ in range(3):
        engine.step()
    add(engine, "high", 0, length=36, most=4)
    engine.step()
    assert running(engine) == ["old", "low"]


def test_the_valve_does_not_give_the_seat_back_at_once() -> None:
    engine = engine_of(ByPriority, replace(SIZES, share=1.0))
    add(engine, "old", 5)
    add(engine, "low", 5)
    for _ in range(3):
        engine.step()
    add(engine, "high", 0, most=6)
    for _ in range(4):
        engine.step()
        assert running(engine) == ["old", "high"]
    assert len(actions(engine, "low", Action.PREEMPT)) == 1
    finish(engine)


@pytest.mark.parametrize("margin", [0.0, 4.0, 16.0])
@pytest.mark.parametrize("overlap", [0, 1])
def test_ranks_that_move_do_not_thrash(margin: float, overlap: int) -> None:
    """Two tenants overtake each other with every charge. Each loses its seat at most once per
    block of progress, a wider margin makes it rarer, and everybody finishes."""

    class Chosen(Fair):
        pass

    Chosen.margin = margin
    sizes = Sizes(num_blocks=64, block_size=4, max_seqs=3, share=0.0, overlap=overlap)
    engine = engine_of(Chosen, sizes)
    for number in range(8):
        context = RequestContext(tenant="ab"[number % 2])
        engine.add(request(f"r{number}", [1, 2], LONG, context=context))
    answers = finish(engine)
    assert set(answers.values()) == {40}
    assert 0 < engine.metrics.preemptions <= 8 * (1 + 42 // 4)
    if margin >= 16:
        assert engine.metrics.preemptions <= 8


@pytest.mark.parametrize("policy", [ByPriority, Fair])
def test_the_laws_hold_with_displacement(policy: type[Discipline[Any]]) -> None:
    check_scheduler(policy, examples=6, steps=25)
    watch = life(lambda context: [policy(PolicyConfig(), context)], TIGHT, seed=9, steps=120)
    assert any("goes first" in decision.reason for decision in watch.engine.log._ring)


@pytest.mark.parametrize("margin", [float("nan"), -1.0, "wide", True, (1.0,)])
def test_a_margin_that_is_none_is_a_fault_and_displaces_nobody(margin: Any) -> None:
    class Wrong(ByPriority):
        preempt_margin = margin

    engine = engine_of(Wrong)
    for name, priority in (("old", 5), ("low", 5), ("high", 0)):
        add(engine, name, priority)
        engine.step()
    engine.step()
    assert running(engine) == ["old", "low"] and engine.fault_counts()["wrong"] >= 1
    finish(engine)


def test_a_margin_that_raises_is_contained() -> None:
    class Raises(ByPriority):
        @property
        def preempt_margin(self) -> float | None:  # type: ignore[override]
            raise ValueError("no margin today")

    engine = engine_of(Raises)
    for name, priority in (("old", 5), ("low", 5), ("high", 0)):
        add(engine, name, priority)
    finish(engine)
    assert "no margin today" in engine.faults()["raises"]
