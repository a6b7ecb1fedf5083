"""What the core guarantees whatever a plugin returns, for every installed scheduler and cache.

Each guarantee has its test. Lives are random; `Watch` checks all of them after every step, the
tests below add what only shows in a special situation.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.core.api import (
    Discipline,
    NeverFits,
    PolicyConfig,
    PolicyContext,
    RequestContext,
    Shape,
    Verdict,
)
from jackfield.core.engine.decisions import Action
from jackfield.core.testing.cache import maker
from jackfield.core.testing.cache_laws import cache_laws_of
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.conformance import check_bypass, check_scheduler
from jackfield.core.testing.engines import GREEDY, Sizes, request
from jackfield.core.testing.lives import EOS, TENANTS, TIGHT, life, start
from jackfield.core.testing.scheduler_machine import run_machine, scheduler_machine
from jackfield.core.testing.stacks import factory_of

SCHEDULERS = {one.name: one for one in entry_points(group="jackfield.v1.schedulers")}
CACHES = {one.name: one for one in entry_points(group="jackfield.v1.caches")}
OVERLAPS = [0, 1, 2]
every_scheduler = pytest.mark.parametrize("name", sorted(SCHEDULERS))
every_overlap = pytest.mark.parametrize("overlap", OVERLAPS)
Factory = Callable[[PolicyContext], list[Any]]


def lives() -> int:
    """Of each kind: 10, and 300 with the deep profile."""
    assert settings.default is not None
    return settings.default.max_examples // 10


def policies(name: str) -> Any:
    """A factory of the installed plugin."""
    return factory_of(SCHEDULERS[name].load())


def busy(name: str, overlap: int, seed: int, advisors: Any = None) -> Any:
    return life(
        policies(name), replace(TIGHT, overlap=overlap), seed=seed, steps=60, make_advisors=advisors
    )


class Chaos:
    """An advisor that answers anything that is legal, and sometimes what is not."""

    def __init__(self, seed: int, rejects: bool = False) -> None:
        self._random = Random(seed)
        if rejects:
            self.admit = self._admit

    def _admit(self, requests: Any, load: Any) -> Any:
        verdicts = [
            Verdict.accept(), Verdict.defer(load.now + self._random.random() * 50),
            Verdict.defer(-1.0), Verdict.reject("no", 1.0),
        ]  # fmt: skip
        return [self._random.choice(verdicts) for _ in requests]

    def shape(self, step: Any) -> Any:
        if self._random.random() < 0.02:
            raise ValueError("no")
        small = (None, None, 0, 1, 2, 10**6)
        return Shape(*(self._random.choice(small) for _ in Shape._fields))

    def quota(self, plan: Any) -> Any:
        if self._random.random() < 0.02:
            return None
        return {need.request.handle: self._random.randrange(6) for need in plan.prefills}

    def victims(self, shortage: Any) -> Any:
        handles = [view.handle for view in shortage.candidates] * 2 + [10**6, -1]
        self._random.shuffle(handles)
        return handles[: self._random.randrange(len(handles) + 1)]

    def observe(self, events: Any) -> None:
        if self._random.random() < 0.02:
            raise KeyError


def chaos(context: PolicyContext) -> Mapping[str, Any]:
    return {"chaos": Chaos(3), "more": Chaos(4)}


def chaos_at_the_door(context: PolicyContext) -> Mapping[str, Any]:
    return {"chaos": Chaos(5, rejects=True)}


@every_scheduler
def test_installed_schedulers_keep_their_contract(name: str) -> None:
    check_scheduler(SCHEDULERS[name].load(), examples=lives())


@pytest.mark.parametrize("name", sorted(CACHES))
def test_installed_caches_keep_their_contract(name: str) -> None:
    """But for the laws of evictors, which are tried on each of them beside their models."""
    make = maker(CACHES[name].load())
    for law in cache_laws_of(make):
        if law.name != "evictor":
            law.check(make, lives())


@every_overlap
@pytest.mark.parametrize("advisors", [chaos, chaos_at_the_door])
def test_a_random_life_with_advisors_that_answer_anything(overlap: int, advisors: Any) -> None:
    run_machine(scheduler_machine(lambda _: [], advisors, overlap), examples=15)


@every_scheduler
@every_overlap
def test_1_block_conservation(name: str, overlap: int) -> None:
    """After every step each block is free or held, and at the end all are free."""
    watch = busy(name, overlap, seed=11, advisors=chaos)
    pool = watch.engine.lifecycle.planner.pool
    assert watch.engine.metrics.preemptions > 0
    assert pool.num_free == pool.num_blocks
    assert not any(pool.holders(block) for block in range(pool.num_blocks))


@every_scheduler
@every_overlap
def test_2_who_waits_or_is_parked_holds_nothing(name: str, overlap: int) -> None:
    clock = ManualClock()
    watch = start(policies(name), replace(TIGHT, overlap=overlap), clock, chaos_at_the_door)
    seen = 0
    for number in range(40):
        watch.add(request(f"r{number}", [number % 7] * 5, GREEDY.with_(max_tokens=9)), EOS)
        watch.step()
        lifecycle = watch.engine.lifecycle
        for one in (*lifecycle.valve.requests(), *lifecycle.gates.requests()):
            seen += 1
            assert not one.blocks and one.seat < 0 and one.handle not in lifecycle.planner.running
        clock.advance(1.0)
    assert seen > 100
    watch.drain()


@every_scheduler
@given(length=st.integers(1, 200), most=st.integers(1, 200))
def test_3_what_never_fits_is_refused_with_both_numbers(name: str, length: int, most: int) -> None:
    sizes = Sizes(num_blocks=10, block_size=4, max_model_len=400, max_tokens=64)
    watch = start(policies(name), sizes, ManualClock())
    new = request("r", [1] * length, GREEDY.with_(max_tokens=most))
    needed = -(-(length + most) // 4)
    if needed > 10:
        with pytest.raises(NeverFits, match=rf"needs {needed} KV blocks of 4; .* has 10"):
            watch.engine.add(new)
        assert not watch.engine.has_work
    else:
        watch.add(new, EOS)
        watch.drain()


@every_scheduler
@every_overlap
def test_4_everybody_who_is_admitted_finishes(name: str, overlap: int) -> None:
    """The oldest is never a victim, others lose their seat at most once per block of progress.

    `Watch` compares both with what it saw before each step.
    """
    sizes = Sizes(12, 2, max_tokens=16, max_seqs=6, max_model_len=24, overlap=overlap)
    watch = start(policies(name), sizes, ManualClock(), chaos)
    for number in range(24):
        context = RequestContext(TENANTS[number % 3], priority=number % 4)
        params = GREEDY.with_(max_tokens=None)
        watch.add(request(f"r{number}", [number % 11, 3], params, context=context), EOS)
    watch.drain()
    assert watch.engine.metrics.preemptions > 0
    for progress in watch.answers.values():
        assert progress.tokens == progress.answer


@every_scheduler
def test_5_the_valve_bounds_how_often_anybody_is_passed(name: str) -> None:
    check_bypass(policies(name))


@every_scheduler
@every_overlap
@pytest.mark.parametrize("shape", [Shape(tokens=0), Shape(seqs=0), Shape(new_seqs=0)])
def test_6_an_empty_plan_is_the_cores_to_fill(name: str, overlap: int, shape: Shape) -> None:
    """`Watch` asserts that no step without overlap is empty while somebody could run."""

    class Stalls:
        def shape(self, step: Any) -> Shape:
            return shape

    watch = busy(name, overlap, seed=12, advisors=lambda _: {"stalls": Stalls()})
    assert watch.engine.metrics.policy_stalls["stalls"] > 0
    reasons = {d.code for d in watch.engine.log._ring if d.action is Action.ADMIT}
    assert "fallback" in reasons


@every_scheduler
@every_overlap
def test_7_faults_are_contained_and_counted(name: str, overlap: int) -> None:
    """A level that always raises, above the plugin and below it, changes no answer."""

    class Broken(Discipline[Any]):
        def classify(self, *_: Any) -> Any:
            raise ValueError

        key = rank = keep = charge = activate = classify  # type: ignore[assignment]

    broken = lambda context: Broken(PolicyConfig(), context)  # noqa: E731
    for stack in (
        lambda context: [broken(context), *policies(name)(context)],
        lambda context: [*policies(name)(context), broken(context)],
    ):
        watch = life(stack, replace(TIGHT, overlap=overlap), seed=13, steps=60)
        faults = watch.engine.faults()
        assert list(faults) == ["broken"] and "ValueError" in faults["broken"]


@every_scheduler
@every_overlap
def test_8_tenants_never_share_a_block(name: str, overlap: int) -> None:
    """Equal prompts of different tenants, and of one tenant, are computed for each; only the
    answers of one request share."""
    sizes = Sizes(64, 2, max_tokens=64, max_seqs=8, max_model_len=24, overlap=overlap)
    watch = start(policies(name), sizes, ManualClock())
    for number, tenant in enumerate(("red", "green", "red")):
        context = RequestContext(tenant)
        params = GREEDY.with_(n=2, ignore_eos=True)
        watch.add(request(f"r{number}", [1, 2, 3, 4, 5], params, context=context), EOS)
    most = 0
    while watch.engine.has_work:
        watch.step()
        running = watch.engine.lifecycle.planner.running.values()
        shared = [one for one in running if one.num_cached]
        most = max(most, len(shared))
        for one in running:
            for other in running:
                if set(one.blocks) & set(other.blocks):
                    assert one.id == other.id
    assert most == 3, "one of each pair shares, so that the check above looks at something"
