"""Shortest job first: first tokens come sooner, and nobody is passed for ever."""

from dataclasses import replace
from random import Random
from statistics import mean
from typing import Any

import pytest

from jackfield.core.api import PolicyContext
from jackfield.core.testing.jobs import ROOMY, Job, Simulation
from jackfield.core.testing.stacks import Factory
from jackfield.plugins.schedulers.fcfs import Fcfs
from jackfield.plugins.schedulers.sjf import Sjf, SjfConfig


def policy(cached: dict[str, int] | None = None, **settings: Any) -> Factory:
    def make(context: PolicyContext) -> list[Sjf]:
        if cached is not None:
            context.cached_tokens = lambda request: cached.get(request.id, 0)
        return [Sjf(SjfConfig(**settings), context)]

    return make


def fcfs(context: PolicyContext) -> list[Fcfs]:
    return [Fcfs(Fcfs.Config(), context)]


def load(seed: int, count: int = 200) -> list[Job]:
    """Prompts of very different lengths, at about the rate that can be served."""
    random, now, jobs = Random(seed), 0.0, []
    for _ in range(count):
        now += random.expovariate(25.0)
        jobs.append(Job(now, min(int(random.paretovariate(0.9) * 30), 3000), random.randint(1, 20)))
    return jobs


@pytest.mark.parametrize("seats", [1, 8])
def test_first_tokens_come_sooner_on_average(seats: int) -> None:
    sizes, gains = replace(ROOMY, max_seqs=seats), []
    for seed in range(4):
        short, first = (
            mean(one.delay for one in Simulation(make, sizes).run(load(seed)))
            for make in (policy(), fcfs)
        )
        assert short <= first * 1.001
        gains.append(first / short)
    assert max(gains) > 1.2


@pytest.mark.parametrize("rate", [500.0, 5000.0])
def test_nobody_is_passed_by_who_comes_much_later(rate: float) -> None:
    sizes = replace(ROOMY, max_seqs=1)
    records = Simulation(policy(tokens_per_second=rate), sizes).run(load(1))
    passed = 0
    for one in records:
        for other in records:
            assert one.admitted is not None and other.admitted is not None
            if one.job.at < other.job.at and other.admitted < one.admitted:
                passed += 1
                assert other.job.at < one.job.at + one.job.prompt / rate
    assert passed > 10


def test_what_a_cache_holds_does_not_count() -> None:
    simulation = Simulation(policy({"long": 290, "far": 10**6}), replace(ROOMY, max_seqs=1))
    jobs = [("first", 1), ("short", 20), ("long", 300), ("plain", 40), ("far", 500)]
    records = simulation.run([Job(0, prompt, 2, id=name) for name, prompt in jobs])
    names = [one.request.id for one in sorted(records, key=lambda one: one.waited)]
    assert names == ["far", "first", "long", "short", "plain"]


def test_answers_that_were_lost_count_as_prompt() -> None:
    """A preempted request waits again with all that it has to compute anew."""
    sizes = replace(ROOMY, num_blocks=10, block_size=4, max_seqs=2)
    simulation = Simulation(policy(tokens_per_second=10.0), sizes)
    simulation.add(Job(0, 8, 30))
    second = simulation.add(Job(0, 8, 30))
    while not second.request.num_preemptions:
        simulation.step()
    assert len(second.request.output) > 4
    shorter = simulation.add(Job(0, 10, 2))
    simulation.step()
    assert shorter.admitted is not None
    assert simulation.waiting == [second.request]
