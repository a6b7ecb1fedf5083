"""Memory that runs out: nobody loses its seat in vain, plans stay whole, heavy ones get through."""

from collections.abc import Callable
from typing import Any

import pytest

from jackfield.core.api import Discipline, PolicyConfig, PolicyContext, RequestContext
from jackfield.core.engine.decisions import Action
from jackfield.core.engine.loop import Engine
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import (
    GREEDY,
    Sizes,
    context_for,
    expected_answer,
    make_engine,
    request,
    run,
)
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.plugins.schedulers.fcfs import Fcfs
from jackfield.plugins.schedulers.priority import Priority, PriorityConfig
from jackfield.plugins.schedulers.sjf import Sjf, SjfConfig

EXACT = GREEDY.with_(ignore_eos=True)
Stack = Callable[[PolicyContext], list[Discipline[Any]]]


def by_priority(margin: float | None = None) -> Stack:
    config = PriorityConfig(preempt_margin=margin)
    return lambda context: [Priority(config, context), Fcfs(PolicyConfig(), context)]


def engine_of(
    sizes: Sizes, stack: Stack | None = None, executor: FakeExecutor | None = None
) -> Engine:
    clock = ManualClock()
    disciplines = (stack or by_priority())(context_for(sizes, clock))
    return make_engine(sizes, disciplines=disciplines, executor=executor, clock=clock)


def add(engine: Engine, name: str, length: int, most: int, priority: int = 0) -> None:
    params = EXACT.with_(max_tokens=most)
    prompt = [len(name)] * length
    engine.add(request(name, prompt, params, context=RequestContext(priority=priority)))


def running(engine: Engine) -> set[str]:
    return {one.id for one in engine.lifecycle.planner.running.values()}


@pytest.mark.parametrize("overlap", [0, 1])
def test_a_long_one_comes_back_when_there_is_room_for_all_of_it(overlap: int) -> None:
    """64 blocks, 900 tokens and eight that grow: lost seats are few, and each was worth its while.

    To come back takes the blocks of all known tokens, so that it is never preempted while it
    computes again what it had.
    """
    sizes = Sizes(64, 16, max_tokens=128, max_seqs=9, max_model_len=1024, overlap=overlap)
    engine = engine_of(sizes)
    for number in range(4):
        add(engine, f"early{number}", 10, 120)
    engine.step()
    add(engine, "long", 900, 40)
    for number in range(4):
        add(engine, f"late{number}", 10, 120)
    marks: dict[int, int] = {}
    while engine.has_work:
        before = {one: one.num_preemptions for one in engine.lifecycle.planner.running.values()}
        engine.step()
        engine.check()
        for one, count in before.items():
            if one.num_preemptions > count:
                assert one.total >= marks.get(one.handle, 0) + 16 or one.handle not in marks
                marks[one.handle] = one.total
    lost = [one.request for one in engine.log._ring if one.action is Action.PREEMPT]
    assert lost, "memory was never short"
    assert max(lost.count(name) for name in lost) <= 3
    assert engine.metrics.finished["length"] == 9


@pytest.mark.parametrize("late_is_better", [True, False])
@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_who_is_planned_and_then_preempted_is_not_in_the_plan(
    late_is_better: bool, overlap: int
) -> None:
    """Both need a block in one step, and the worse one was looked at first."""
    sizes = Sizes(10, 4, max_tokens=16, max_seqs=4, max_model_len=40, share=0.0, overlap=overlap)
    executor = FakeExecutor(sizes.block_size)
    engine = engine_of(sizes, executor=executor)
    add(engine, "old", 3, 12)
    engine.step()
    for name in ("a", "b"):
        add(engine, name, 3, 16, priority=0 if (name == "b") is late_is_better else 5)
    lost = 0
    while engine.has_work:
        last = executor.last_plan
        before = {one: one.num_preemptions for one in engine.lifecycle.planner.running.values()}
        engine.step()
        engine.check()
        plan = executor.last_plan
        gone = {one.handle for one, count in before.items() if one.num_preemptions > count}
        lost += len(gone)
        if plan is not None and plan is not last:
            assert not gone & {part.handle for part in plan.slices}
    worse = "a" if late_is_better else "b"
    preempted = {one.request for one in engine.log._ring if one.action is Action.PREEMPT}
    assert lost and preempted == {worse}


def test_seats_full_of_worse_ones_make_room_and_equal_ones_do_not() -> None:
    engine = engine_of(Sizes(max_seqs=2, share=0.0), by_priority(0.0))
    add(engine, "low", 2, 40, priority=5)
    add(engine, "lower", 2, 40, priority=9)
    engine.step()
    add(engine, "equal", 2, 4, priority=9)
    for _ in range(3):
        engine.step()
    assert running(engine) == {"low", "lower"}
    add(engine, "high", 2, 4, priority=0)
    engine.step()
    assert running(engine) == {"low", "high"}
    run(engine)


def test_blocks_full_of_worse_ones_make_room_although_seats_are_free() -> None:
    engine = engine_of(Sizes(num_blocks=12, block_size=4, max_seqs=8, share=0.0), by_priority(0.0))
    add(engine, "low", 16, 16, priority=5)
    add(engine, "lower", 16, 16, priority=9)
    for _ in range(4):
        engine.step()
    add(engine, "high", 14, 2, priority=0)
    engine.step()
    assert engine.lifecycle.planner.seats_left > 0
    assert running(engine) == {"low", "high"}
    run(engine)


def heavy_behind_a_flow(stack: Stack, share: float, steps: int = 2000) -> tuple[int, bool]:
    """A request that needs all blocks but one, and an endless flow of small ones.

    Returns how many were admitted while it waited, and whether it was.
    """
    sizes = Sizes(num_blocks=8, block_size=4, max_seqs=8, max_model_len=32, share=share)
    engine = engine_of(sizes, stack)
    for number in range(3):
        add(engine, f"first{number}", 2, 2)
    engine.step()
    add(engine, "heavy", 27, 1)
    for number in range(steps):
        add(engine, f"small{number}", 1, 2)
        before = engine.metrics.admissions
        engine.step()
        if any(one.action is Action.ADMIT for one in engine.explain("heavy")):
            return before - 3, True
    return engine.metrics.admissions - 3, False


def shortest(context: PolicyContext) -> list[Discipline[Any]]:
    return [Sjf(SjfConfig(tokens_per_second=0.001), context)]


def test_nobody_overtakes_a_head_that_lacks_blocks() -> None:
    passed, admitted = heavy_behind_a_flow(by_priority(), share=0.0)
    assert admitted and passed == 0


@pytest.mark.parametrize("share", [0.05, 0.25])
def test_an_order_that_overtakes_is_bounded_by_the_valve(share: float) -> None:
    passed, admitted = heavy_behind_a_flow(shortest, share)
    assert admitted and 0 < passed <= 2 / share + 8


def test_without_the_valve_it_would_wait_for_ever() -> None:
    passed, admitted = heavy_behind_a_flow(shortest, share=0.0)
    assert not admitted and passed > 1000


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_the_last_one_never_meets_the_wall(overlap: int) -> None:
    """One request that grows to the very last position of the pool, and back again."""
    sizes = Sizes(num_blocks=2, block_size=16, max_tokens=64, max_model_len=64, overlap=overlap)
    engine = engine_of(sizes)
    for name in ("one", "other"):
        add(engine, name, 31 - len(name), 1 + len(name))
    answers = run(engine)
    for name in ("one", "other"):
        right = expected_answer([len(name)] * (31 - len(name)), 1 + len(name))
        assert answers[(name, 0)].tokens == right
