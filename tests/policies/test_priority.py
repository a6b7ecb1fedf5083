"""Strict priorities, priorities that age, and priorities that take seats."""

from dataclasses import replace
from random import Random

import pytest

from jackfield.core.api import PolicyContext, RequestContext
from jackfield.core.testing.conformance import check_scheduler
from jackfield.core.testing.jobs import ROOMY, Job, Simulation
from jackfield.core.testing.lives import TIGHT, life
from jackfield.core.testing.stacks import Factory
from jackfield.plugins.schedulers.priority import SLICES, Priority, PriorityConfig

FEW = replace(ROOMY, max_seqs=3)


def policy(**settings: float) -> Factory:
    def make(context: PolicyContext) -> list[Priority]:
        return [Priority(PriorityConfig(**settings), context)]  # type: ignore[arg-type]

    return make


def jobs(seed: int, count: int = 150, span: float = 3.0) -> list[Job]:
    random = Random(seed)
    return [
        Job(
            random.uniform(0, span), random.randint(1, 200), random.randint(1, 30),
            RequestContext(priority=random.randint(-1, 2)),
        )
        for _ in range(count)
    ]  # fmt: skip


def feed(simulation: Simulation, pending: list[Job]) -> None:
    while pending and pending[0].at <= simulation.clock.now():
        simulation.add(pending.pop(0))


def violations(simulation: Simulation, pending: list[Job]) -> int:
    """Admissions of a worse priority while a better one waited since before the step."""
    found = 0
    while pending or simulation.engine.has_work:
        feed(simulation, pending)
        waiting = {one.handle: one for one in simulation.waiting}
        waiting |= {one.handle: one for one in simulation.engine._arrivals}
        simulation.step()
        admitted = [waiting.pop(one.handle) for one in simulation.running if one.handle in waiting]
        left = min((one.context.priority for one in waiting.values()), default=99)
        found += sum(one.context.priority > left for one in admitted)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_strict_without_the_valve(seed: int) -> None:
    pending = sorted(jobs(seed))
    assert violations(Simulation(policy(), FEW), pending) == 0


def test_with_the_valve_only_the_valve_breaks_the_order() -> None:
    simulation = Simulation(policy(), replace(FEW, share=0.1))
    found = violations(simulation, sorted(jobs(0)))
    assert 0 < found <= simulation.engine.metrics.valve_admissions


def test_a_stream_of_better_ones_starves_the_worse_only_if_strict() -> None:
    """One seat, always somebody of priority 0 waiting, and one of priority 2."""
    waits = {}
    for ageing in (None, 0.1, 0.4):
        settings = {} if ageing is None else {"ageing": ageing}
        simulation = Simulation(policy(**settings), replace(FEW, max_seqs=1))
        first = simulation.add(Job(0, 10, 5))
        worse = simulation.add(Job(0, 10, 5, RequestContext(priority=2)))
        for _ in range(3000):
            if len(simulation.waiting) < 3:
                simulation.add(Job(0, 10, 5))
            simulation.step()
        assert first.ended is not None
        waits[ageing] = None if worse.admitted is None else worse.waited
    assert waits[None] is None
    assert waits[0.1] is not None and waits[0.4] is not None
    assert waits[0.1] < waits[0.4] < 2 * 0.4 * (1 + 1 / SLICES) + 0.1


@pytest.mark.parametrize("seed", range(4))
def test_ageing_bounds_who_may_pass(seed: int) -> None:
    """Nobody is admitted after one that came later by more than the difference in priority."""
    ageing = 0.2
    records = Simulation(policy(ageing=ageing), FEW).run(jobs(seed))
    slack = ageing / SLICES
    for one in records:
        for other in records:
            difference = one.job.context.priority - other.job.context.priority
            latest = one.job.at + difference * ageing + slack
            assert one.admitted is not None and other.admitted is not None
            if other.job.at >= latest and other.job.at > one.job.at:
                assert one.admitted <= other.admitted


def test_preempt_margin_takes_a_seat_in_the_next_step() -> None:
    simulation = Simulation(policy(preempt_margin=1), replace(FEW, max_seqs=2))
    for priority in (3, 3):
        simulation.add(Job(0, 10, 200, RequestContext(priority=priority)))
    for _ in range(5):
        simulation.step()
    simulation.add(Job(0, 10, 5, RequestContext(priority=2), "near"))
    simulation.step()
    assert "near" not in [one.id for one in simulation.running]
    simulation.add(Job(0, 10, 5, RequestContext(priority=1), "far"))
    simulation.step()
    assert "far" in [one.id for one in simulation.running]
    assert simulation.engine.metrics.preemptions == 1


@pytest.mark.parametrize("settings", [{"preempt_margin": 0}, {"preempt_margin": 0, "ageing": 0.2}])
def test_preemptions_are_bounded(settings: dict[str, float]) -> None:
    """The order is fixed, so everybody is displaced at most once by each that comes later."""
    simulation = Simulation(policy(**settings), FEW)
    records = simulation.run(jobs(5))
    displaced = sum(record.request.num_preemptions for record in records)
    better = sum(
        other.job.context.priority < one.job.context.priority and other.job.at > one.job.at
        for one in records
        for other in records
    )
    assert 0 < displaced <= better
    assert displaced == simulation.engine.metrics.preemptions < len(records)


def test_what_does_not_fit_into_a_class_of_its_own_goes_last() -> None:
    sizes = replace(FEW, max_seqs=1, max_classes=2)
    simulation = Simulation(policy(), sizes)
    simulation.add(Job(0, 10, 5))
    simulation.step()
    for priority in (5, 6, -9, 5):
        simulation.add(Job(0, 10, 5, RequestContext(priority=priority)))
    records = simulation.run([])
    assert records == []
    order = sorted(simulation.records.values(), key=lambda record: record.admitted or 0.0)
    assert [record.job.context.priority for record in order] == [0, 5, 5, 6, -9]


@pytest.mark.parametrize("settings", [{}, {"ageing": 1.0}, {"ageing": 0.5, "preempt_margin": 1}])
def test_the_laws_hold(settings: dict[str, float]) -> None:
    check_scheduler(policy(**settings), examples=4, steps=20)
    life(policy(**settings), TIGHT, seed=3)
