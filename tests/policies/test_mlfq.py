"""Multi-level feedback: where requests join, when they sink, whom they displace, who gains."""

from dataclasses import replace
from random import Random
from statistics import mean
from typing import Any

import pytest

from jackfield.core.api import PolicyContext
from jackfield.core.testing.conformance import check_scheduler
from jackfield.core.testing.jobs import ROOMY, Job, Record, Simulation
from jackfield.core.testing.lives import TIGHT, life
from jackfield.core.testing.stacks import Factory
from jackfield.plugins.schedulers.fcfs import Fcfs
from jackfield.plugins.schedulers.mlfq import LOOKS, Mlfq, MlfqConfig

SMALL = {"quantum": 16, "levels": 5}


def policy(**settings: Any) -> Factory:
    return lambda context: [Mlfq(MlfqConfig(**settings), context)]


def fcfs(context: PolicyContext) -> list[Fcfs]:
    return [Fcfs(Fcfs.Config(), context)]


def level(record: Record) -> object:
    assert record.request.leaf is not None
    path = list(record.request.leaf.path())
    return path[-2].state.key


def naive_level(service: int) -> int:
    """The first level whose quantum, 16, 32, 64 and so on, holds the service."""
    return next((number for number in range(4) if service <= 16 << number), 4)


@pytest.mark.parametrize("prompt", [1, 16, 17, 32, 33, 64, 65, 128, 129, 1000])
def test_a_prompt_joins_at_the_level_that_holds_it(prompt: int) -> None:
    simulation = Simulation(policy(**SMALL))
    record = simulation.add(Job(0, prompt, 5))
    simulation.step()
    assert level(record) == naive_level(prompt)


@pytest.mark.parametrize("overlap", [0, 2])
def test_who_runs_sinks_as_it_is_served(overlap: int) -> None:
    simulation = Simulation(policy(**SMALL), replace(ROOMY, overlap=overlap))
    records = [simulation.add(Job(0, prompt, 400)) for prompt in (3, 40, 7)]
    seen = set()
    for _ in range(300):
        simulation.step()
        for one in records:
            service = len(one.request.prompt) + len(one.request.output)
            recently = naive_level(max(service - 16 // LOOKS - 2, len(one.request.prompt)))
            assert recently <= level(one) <= naive_level(service)  # type: ignore[operator]
            seen.add(level(one))
    assert seen == {0, 1, 2, 3, 4}


def test_seats_are_counted_where_the_request_is_now() -> None:
    simulation = Simulation(policy(**SMALL))
    for _ in range(3):
        simulation.add(Job(0, 4, 100))
    for _ in range(60):
        simulation.step()
    nodes = [one for one in simulation.engine.lifecycle.tree.nodes() if one.parent is not None]
    assert [(one.state.key, one.state.running) for one in nodes if one.has_requests] == [(2, 3)]


@pytest.mark.parametrize("preempt", [True, False])
def test_a_better_level_takes_a_seat_in_the_next_step(preempt: bool) -> None:
    simulation = Simulation(policy(preempt=preempt, **SMALL), replace(ROOMY, max_seqs=2))
    records = [simulation.add(Job(0, 4, 300)) for _ in range(2)]
    for _ in range(100):
        simulation.step()
    short = simulation.add(Job(0, 4, 5))
    simulation.step()
    assert (short.admitted is not None) == preempt
    assert [one.request.num_preemptions for one in records] == [0, int(preempt)]
    simulation.run([])


def test_within_a_level_nobody_is_displaced() -> None:
    simulation = Simulation(policy(**SMALL), replace(ROOMY, max_seqs=2))
    simulation.run([Job(0, 4, 10) for _ in range(10)])
    assert simulation.engine.metrics.preemptions == 0


def bimodal(seed: int, count: int = 200) -> list[Job]:
    """Nine in ten have short answers, the others long ones, at about what can be served."""
    random, now, jobs = Random(seed), 0.0, []
    for _ in range(count):
        now += random.expovariate(90.0)
        answer = random.randint(200, 400) if random.random() < 0.1 else random.randint(2, 20)
        jobs.append(Job(now, random.randint(5, 30), answer))
    return jobs


@pytest.mark.parametrize("seed", range(3))
def test_short_jobs_end_earlier_than_first_come_first_served(seed: int) -> None:
    sizes = replace(ROOMY, max_seqs=4)
    feedback, first = (
        [one.seconds for one in Simulation(make, sizes).run(bimodal(seed)) if one.job.answer < 50]
        for make in (policy(quantum=32), fcfs)
    )
    assert mean(feedback) < mean(first) * 0.5


def test_nobody_starves_thanks_to_the_valve() -> None:
    """A long one, and so many short ones that all seats are always wanted by better levels."""
    sizes = replace(ROOMY, max_seqs=2, share=0.05)
    simulation = Simulation(policy(**SMALL), sizes)
    long = simulation.add(Job(0, 200, 50))
    for _ in range(3000):
        while len(simulation.waiting) < 4:
            simulation.add(Job(0, 4, 4))
        simulation.step()
        if long.ended is not None:
            break
    assert long.ended is not None


@pytest.mark.parametrize("settings", [{}, {"quantum": 2, "levels": 3}, {"preempt": False}])
def test_the_laws_hold(settings: dict[str, Any]) -> None:
    check_scheduler(policy(**settings), examples=3, steps=15)
    for seed in range(2):
        life(policy(**settings), TIGHT, seed=seed)
