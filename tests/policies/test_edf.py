"""Earliest deadline first: its order, its victims, and deadlines that arrival order misses."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from jackfield.core.api import PolicyContext, RequestContext
from jackfield.core.testing.jobs import ROOMY, Job, Record, Simulation
from jackfield.core.testing.stacks import Factory
from jackfield.plugins.schedulers.edf import Edf, EdfConfig
from jackfield.plugins.schedulers.fcfs import Fcfs

ONE = replace(ROOMY, max_seqs=1)


def policy(**settings: Any) -> Factory:
    return lambda context: [Edf(EdfConfig(**settings), context)]


def fcfs(context: PolicyContext) -> list[Fcfs]:
    return [Fcfs(Fcfs.Config(), context)]


def due(deadline: float | None, at: float = 0.0, prompt: int = 10, answer: int = 5) -> Job:
    return Job(at, prompt, answer, RequestContext(deadline=deadline))


def order(records: list[Record]) -> list[float | None]:
    return [one.job.context.deadline for one in sorted(records, key=lambda one: one.waited)]


def test_order_is_by_deadline_also_past_ones_and_none() -> None:
    """None counts as due so many seconds after its arrival, which is 0 here."""
    simulation = Simulation(policy(laxity=5.0), ONE)
    deadlines = [9.0, 4.0, -3.0, None, 6.0, 1e9, 0.0]
    records = simulation.run([due(deadline) for deadline in deadlines])
    assert order(records) == [-3.0, 0.0, 4.0, None, 6.0, 9.0, 1e9]


def test_the_default_laxity_is_a_minute() -> None:
    simulation = Simulation(policy(), ONE)
    assert order(simulation.run([due(60.5), due(None), due(59.5)])) == [59.5, None, 60.5]


def test_equal_deadlines_go_by_arrival() -> None:
    simulation = Simulation(policy(), ONE)
    records = simulation.run([due(3.0, at=number * 1e-6) for number in range(5)])
    assert [one.admitted for one in records] == sorted(one.waited + one.job.at for one in records)


def test_the_latest_deadline_is_preempted_first() -> None:
    """Four requests outgrow the pool together; the first that arrived is the oldest, and stays."""
    sizes = replace(ROOMY, num_blocks=16, block_size=4, max_seqs=4)
    simulation = Simulation(policy(), sizes)
    records = [simulation.add(due(when, 0, 8, 24)) for when in (50.0, 2.0, 90.0, 3.0)]
    simulation.step()
    assert len(simulation.running) == 4
    lost: list[float | None] = []
    while simulation.engine.has_work:
        before = [one.request.num_preemptions for one in records]
        simulation.step()
        for one, count in zip(records, before, strict=True):
            lost += [one.job.context.deadline] * (one.request.num_preemptions > count)
    assert lost[0] == 90.0
    assert {2.0, 50.0}.isdisjoint(lost)


def feasible(seed: int) -> list[Job]:
    """One seat: jobs in some order, each due a little after its end in that order; they arrive
    in another order, at once or shortly before their turn.
    """
    random, now, jobs = Random(seed), 0.0, []
    longest = 0.03  # who runs is not displaced: everybody may wait for one more
    for _ in range(60):
        prompt, answer = random.randint(10, 100), random.randint(1, 10)
        arrival = random.uniform(0.0, now) if random.random() < 0.7 else now
        now += 0.001 * (answer + 1) + 0.0001 * (prompt + answer)
        jobs.append(due(now + longest, arrival, prompt, answer))
    return jobs


def late(records: list[Record]) -> int:
    return sum((one.ended or 0.0) > (one.job.context.deadline or 0.0) for one in records)


@pytest.mark.parametrize("seed", range(6))
def test_all_deadlines_of_a_feasible_load_are_met(seed: int) -> None:
    assert late(Simulation(policy(), ONE).run(feasible(seed))) == 0
    assert late(Simulation(fcfs, ONE).run(feasible(seed))) > 0
