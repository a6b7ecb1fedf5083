"""Classes that are held back: nobody of them is admitted early, everybody is admitted at last."""

import math
from collections.abc import Hashable
from typing import Any

import pytest

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    RequestContext,
    RequestView,
    Shape,
)
from jackfield.core.engine.decisions import Action
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request, run

SHORT = GREEDY.with_(max_tokens=1)
SIZES = Sizes(share=0.0, max_seqs=2)


class HeldBack(Discipline[float]):
    """Tenants wait for the time that `times` says; the others need not."""

    def __init__(self, times: dict[Hashable, float], clock: ManualClock) -> None:
        super().__init__(PolicyConfig(), context_for(SIZES, clock))
        self.times = times
        self.asked: list[tuple[Hashable, float]] = []

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant

    def eligible_at(self, cls: ClassState[float], now: float) -> float:
        self.asked.append((cls.key, now))
        return self.times.get(cls.key, 0.0)


class Tiers(Discipline[None]):
    """A level above: one class per tier, the first before the second."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tier

    def rank(self, cls: ClassState[None], now: float) -> float:
        return float(cls.key == "second")


class World:
    """An engine with one policy that holds back, and its clock."""

    def __init__(
        self,
        times: dict[Hashable, float],
        sizes: Sizes = SIZES,
        above: list[type[Any]] | None = None,
        advisors: Any = None,
    ) -> None:
        self.clock = ManualClock()
        self.policy = HeldBack(times, self.clock)
        context = context_for(sizes, self.clock)
        stack = [*(one(PolicyConfig(), context) for one in above or []), self.policy]
        self.engine = make_engine(sizes, disciplines=stack, clock=self.clock, advisors=advisors)
        self.order: list[tuple[str, float]] = []

    def add(self, name: str, tenant: str, tier: str = "first") -> None:
        context = RequestContext(tenant=tenant, tier=tier)
        self.engine.add(request(name, [1, 2, 3], SHORT, context=context))

    def step(self) -> None:
        for delta in self.engine.step():
            self.order.append((delta.id, self.clock.now()))
        self.engine.check()

    def drain(self) -> list[tuple[str, float]]:
        """Step, and sleep to the next alarm whenever the engine says that it is idle."""
        for _ in range(1000):
            if not self.engine.has_work:
                return self.order
            if self.engine.is_idle:
                alarm = self.engine.next_alarm
                assert alarm is not None, "idle for ever"
                self.clock.advance(max(alarm - self.clock.now(), 0.0))
            self.step()
        raise AssertionError(f"still busy after {self.order}")


def test_nobody_of_a_class_goes_before_its_time_and_an_idle_engine_wakes_then() -> None:
    world = World({"late": 5.0, "later": 9.0})
    for name, tenant in (("a", "later"), ("b", "late"), ("c", "free")):
        world.add(name, tenant)
    assert world.drain() == [("c", 0.0), ("b", 5.0), ("a", 9.0)]


def test_the_engine_is_idle_while_all_who_wait_are_held_back() -> None:
    world = World({"late": 5.0})
    world.add("a", "late")
    assert not world.engine.is_idle
    world.step()
    assert world.engine.is_idle and world.engine.has_work
    assert world.engine.next_alarm == 5.0
    world.add("b", "free")
    assert not world.engine.is_idle


def test_who_is_held_back_below_does_not_hold_up_the_class_beside() -> None:
    """All of the first tier is held back, so that the second goes, and the first when it may."""
    world = World({"late": 5.0}, Sizes(share=0.0, max_seqs=1), [Tiers])
    world.add("a", "late", "first")
    world.add("b", "free", "second")
    world.step()
    assert world.order == [("b", 0.0)]
    world.clock.advance(5.0)
    world.add("c", "free", "second")
    assert [name for name, _ in world.drain()] == ["b", "a", "c"]


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_valve_takes_the_oldest_of_those_who_may(share: float) -> None:
    world = World({"late": 50.0}, Sizes(share=share, max_seqs=1))
    world.add("held", "late")
    for number in range(6):
        world.add(f"r{number}", "free")
    order = [name for name, _ in world.drain()]
    assert order == ["r0", "r1", "r2", "r3", "r4", "r5", "held"]
    assert world.engine.metrics.valve_admissions > 0


def test_the_fallback_for_empty_steps_does_not_either() -> None:
    class Nothing:
        def shape(self, step: Any) -> Shape:
            return Shape(new_seqs=0)

    world = World({"late": 5.0}, advisors={"nothing": Nothing()})
    world.add("held", "late")
    world.step()
    world.step()
    assert not world.order and world.engine.metrics.policy_stalls["nothing"] == 0
    world.add("free", "free")
    assert world.drain() == [("free", 0.0), ("held", 5.0)]
    assert world.engine.metrics.policy_stalls["nothing"] == 2


@pytest.mark.parametrize("until", [math.inf, 1e9, 10**400])
def test_nobody_waits_for_ever(until: float) -> None:
    world = World({"never": until}, Sizes(share=0.0, max_seqs=1, park_timeout=60.0))
    world.add("a", "never")
    world.clock.advance(30.0)
    world.add("b", "never")
    assert world.drain() == [("a", 60.0), ("b", 90.0)]


def test_who_is_overdue_goes_next_whatever_the_level_above_says() -> None:
    sizes = Sizes(share=0.0, max_seqs=1, park_timeout=60.0)
    world = World({"never": math.inf}, sizes, [Tiers])
    world.add("low", "never", "second")
    world.clock.advance(61.0)
    for number in range(3):
        world.add(f"r{number}", "free", "first")
    assert world.drain()[0][0] == "low"


def test_the_reason_names_the_plugin_and_the_time() -> None:
    world = World({"late": 5.0})
    world.add("a", "late")
    world.step()
    world.step()
    waits = [d for d in world.engine.explain("a") if d.action is Action.WAIT]
    assert [(d.reason, d.plugin) for d in waits] == [("not before 5.000 by heldback", "heldback")]


def test_a_class_is_asked_when_it_is_touched_and_when_its_time_has_come() -> None:
    world = World({"late": 5.0})
    world.add("a", "late")
    for _ in range(4):
        world.step()
    assert world.policy.asked == [("late", 0.0)]
    world.clock.advance(5.0)
    world.policy.times["late"] = 7.0
    world.step()
    assert world.policy.asked == [("late", 0.0), ("late", 5.0)]
    assert world.engine.next_alarm == 7.0
    assert world.drain() == [("a", 7.0)]


def test_an_aborted_request_leaves_no_alarm() -> None:
    world = World({"late": 5.0})
    world.add("a", "late")
    world.step()
    world.engine.abort("a")
    world.step()
    assert world.engine.next_alarm is None and not world.engine.has_work


def test_a_level_that_falls_back_holds_nobody() -> None:
    world = World({"late": "soon"}, Sizes(share=0.0, fault_limit=1))  # type: ignore[dict-item]
    world.add("a", "late")
    assert run(world.engine)[("a", 0)].finish
    assert list(world.engine.faults()) == ["heldback"]
