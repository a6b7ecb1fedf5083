"""Whole plans by a plugin: what it may do, what it may not, and what happens when it fails."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from jackfield.core.api import PlanBuilder, Shape, StepView
from jackfield.core.engine.decisions import Action
from jackfield.core.testing.engines import GREEDY, Sizes, expected_answer, make_engine, request, run
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.lives import TIGHT, life
from jackfield.core.testing.scheduler_machine import run_machine, scheduler_machine

Plan = Callable[[StepView, PlanBuilder], None]


class Plans:
    """The hook, as a function."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


def engine_of(plan: Plan, sizes: Sizes | None = None, **more: Any) -> Any:
    return make_engine(sizes or Sizes(), advisors={"plans": Plans(plan), **more})


def simple(step: StepView, planner: PlanBuilder) -> None:
    """Everybody who can: decodes, then prompts, then whoever waits."""
    for view in planner.decoding:
        planner.decode(view.handle)
    for view in planner.waiting:
        planner.admit(view.handle)
    for view in planner.running:
        planner.grant(view.handle, min(planner.need(view.handle), planner.tokens_left))


def chaotic(seed: int) -> Plan:
    random = Random(seed)

    def plan(step: StepView, planner: PlanBuilder) -> None:
        for _ in range(random.randrange(30)):
            views = [*planner.running, *planner.waiting]
            handle = random.choice([*(v.handle for v in views), -1, 10**9, "x", None, True])
            method = random.choice((planner.decode, planner.admit, planner.preempt))
            if random.random() < 0.4:
                planner.grant(handle, random.choice((0, -1, 1, 2, 10**9, 1.0, None)))  # type: ignore[arg-type]
            else:
                method(handle)  # type: ignore[arg-type]
        if random.random() < 0.02:
            raise ValueError("no plan today")

    return plan


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_a_plan_by_hand_gives_the_same_answers(overlap: int) -> None:
    watch = life(
        lambda _: [], replace(TIGHT, overlap=overlap), steps=120,
        make_advisors=lambda _: {"plans": Plans(simple)},
    )  # fmt: skip
    assert watch.engine.fault_counts() == {}
    by = {d.code for d in watch.engine.log._ring if d.action is Action.ADMIT}
    assert "plan" in by


@pytest.mark.parametrize("overlap", [0, 2])
def test_whatever_it_calls_the_laws_hold(overlap: int) -> None:
    make = lambda context: {"plans": Plans(chaotic(7))}  # noqa: E731
    run_machine(scheduler_machine(lambda _: [], make, overlap), examples=8, steps=25)


def test_each_method_says_whether_it_was_possible() -> None:
    said: dict[str, list[Any]] = {}

    def plan(step: StepView, planner: PlanBuilder) -> None:
        if step.number == 0:
            (first, second) = planner.waiting
            said["admit"] = [planner.admit(first.handle), planner.admit(first.handle)]
            said["full"] = [planner.admit(second.handle), planner.seats_left]
            said["grant"] = [planner.grant(first.handle, n) for n in (0, 99, 2, 1)]
            said["early"] = [planner.decode(first.handle), planner.preempt(first.handle)]
            said["left"] = [planner.tokens_left, planner.need(first.handle)]
        elif step.number == 1:
            (view,) = planner.running
            said["rest"] = [planner.need(view.handle), planner.grant(view.handle, 2)]
            said["oldest"] = [planner.preempt(view.handle)]
        elif step.number == 2:
            (view,) = planner.decoding
            said["decode"] = [planner.decode(view.handle), planner.decode(view.handle)]
            said["after"] = [len(planner.decoding), planner.need(view.handle)]
        else:
            simple(step, planner)

    engine = engine_of(plan, Sizes(max_seqs=1, max_tokens=16))
    for name in "ab":
        engine.add(request(name, [1, 2, 3, 4]))
    answers = run(engine)
    assert said == {
        "admit": [True, False],
        "full": [False, 0],
        "grant": [False, False, True, False],
        "early": [False, False],
        "left": [0, 4],
        "rest": [2, True],
        "oldest": [False],
        "decode": [True, False],
        "after": [0, 0],
    }
    assert all(answer.tokens == expected_answer([1, 2, 3, 4], 8) for answer in answers.values())


def test_the_builder_is_dead_after_the_call() -> None:
    kept: list[Any] = []

    def plan(step: StepView, planner: PlanBuilder) -> None:
        kept.append((planner, [view.handle for view in planner.waiting]))
        simple(step, planner)

    engine = engine_of(plan)
    engine.add(request("a", [1, 2, 3]))
    engine.step()
    planner, (handle,) = kept[0]
    assert (planner.tokens_left, planner.seats_left, planner.free_blocks) == (0, 0, 0)
    assert not planner.running and not planner.waiting and not planner.decoding
    for method in (planner.decode, planner.admit, planner.preempt):
        assert method(handle) is False
    assert planner.grant(handle, 1) is False and planner.need(handle) == 0
    run(engine)


def test_a_plan_that_raises_is_undone_and_the_core_plans_the_step() -> None:
    def plan(step: StepView, planner: PlanBuilder) -> None:
        simple(step, planner)
        raise ValueError("half way")

    engine = engine_of(plan)
    for name in "abc":
        engine.add(request(name, [1, 2, 3]))
    answers = run(engine)
    assert all(answer.tokens == expected_answer([1, 2, 3], 8) for answer in answers.values())
    assert engine.fault_counts() == {"plans": 3} and "half way" in engine.faults()["plans"]
    assert engine.metrics.policy_stalls == {}


def test_what_the_core_plans_then_is_all_that_it_would_have_planned() -> None:
    def plan(step: StepView, planner: PlanBuilder) -> None:
        for view in planner.waiting:
            planner.admit(view.handle)
        planner.grant(planner.running[0].handle, 1)
        raise ValueError

    sizes = Sizes(max_seqs=32, max_tokens=64)
    executor = FakeExecutor(sizes.block_size)
    engine = make_engine(sizes, advisors={"plans": Plans(plan)}, executor=executor)
    for name in "abc":
        engine.add(request(name, [1, 2, 3]))
    engine.step()
    assert executor.last_plan is not None
    assert [part.length for part in executor.last_plan.slices] == [3, 3, 3]
    assert engine.lifecycle.planner.tokens_left == 64
    run(engine)


def test_an_empty_plan_is_a_stall_of_its_owner_alone() -> None:
    class Innocent:
        def shape(self, step: Any) -> Shape:
            return Shape()

    engine = engine_of(lambda step, planner: None, innocent=Innocent())
    engine.add(request("a", [1, 2, 3]))
    answers = run(engine)
    assert answers[("a", 0)].tokens == expected_answer([1, 2, 3], 8)
    assert engine.metrics.policy_stalls == {"plans": 8} and not engine.fault_counts()


def test_limits_of_a_step_hold_for_plans_too() -> None:
    class Narrow:
        def shape(self, step: Any) -> Shape:
            return Shape(tokens=3, new_seqs=1, prefill_tokens=2)

    seen = []

    def plan(step: StepView, planner: PlanBuilder) -> None:
        admitted = [planner.admit(view.handle) for view in planner.waiting]
        for view in planner.decoding:
            planner.decode(view.handle)
        for view in planner.running:
            planner.grant(view.handle, min(2, planner.need(view.handle)))
        seen.append((sum(admitted), planner.tokens_left))

    engine = engine_of(plan, narrow=Narrow())
    for name in "abc":
        engine.add(request(name, [1, 2, 3, 4]))
    run(engine)
    assert max(count for count, _ in seen) == 1 and min(left for _, left in seen) >= 0
    assert [d.code for d in engine.log._ring if d.action is Action.ADMIT] == ["plan"] * 3


def test_the_oldest_is_not_left_out_for_ever() -> None:
    def selfish(step: StepView, planner: PlanBuilder) -> None:
        for view in planner.waiting:
            planner.admit(view.handle)
        for view in planner.running:
            if view.id != "old":
                planner.grant(view.handle, planner.need(view.handle))
                planner.decode(view.handle)

    engine = engine_of(selfish)
    engine.add(request("old", [1, 2, 3], GREEDY.with_(max_tokens=2)))
    answers: dict[str, int] = {}
    for number in range(400):
        engine.add(request(f"r{number}", [1], GREEDY.with_(max_tokens=2)))
        for delta in engine.step():
            if delta.finish:
                answers.setdefault(delta.id, number)
    assert answers["old"] < 200
    assert 0 < engine.metrics.policy_stalls["plans"] < 10
