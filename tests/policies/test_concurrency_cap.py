"""Caps on running requests: they hold at every step, and nobody else is held up."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from jackfield.core.api import RequestContext
from jackfield.core.testing.conformance import check_scheduler
from jackfield.core.testing.jobs import ROOMY, Job, Simulation
from jackfield.core.testing.stacks import Factory
from jackfield.plugins.schedulers.concurrency_cap import ConcurrencyCap, ConcurrencyCapConfig

CAPS = {"cap": 3, "caps": {"a": 1, "b": 2}}


def policy(**settings: Any) -> Factory:
    return lambda context: [ConcurrencyCap(ConcurrencyCapConfig(**settings), context)]


def tenant(name: str, at: float = 0.0, answer: int = 10) -> Job:
    return Job(at, 10, answer, RequestContext(tenant=name, tier=f"tier of {name}"))


def seats(simulation: Simulation) -> dict[str, int]:
    names = [one.context.tenant for one in simulation.running]
    return {name: names.count(name) for name in set(names)}


@pytest.mark.parametrize("blocks", [16, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_caps_hold_at_every_step_and_no_seat_stays_empty(seed: int, blocks: int) -> None:
    random, limits = Random(seed), {"a": 1, "b": 2, "c": 3, "d": 3}
    sizes = replace(ROOMY, max_seqs=6, num_blocks=blocks, share=0.1)
    simulation = Simulation(policy(**CAPS), sizes)
    for _ in range(400):
        if len(simulation.waiting) < 12:
            simulation.add(tenant(random.choice("abcd"), answer=random.randint(2, 60)))
        simulation.step()
        assert all(count <= limits[name] for name, count in seats(simulation).items())
        held = seats(simulation)
        for name in [name for name, one in simulation.records.items() if one.ended is not None]:
            ended = simulation.records.pop(name).job.context.tenant
            held[ended] = held.get(ended, 0) + 1
        if sum(held.values()) < 6 and blocks == 1000:
            for one in simulation.waiting:
                assert held[one.context.tenant] == limits[one.context.tenant]
    assert not simulation.engine.fault_counts()
    assert (simulation.engine.metrics.preemptions > 0) == (blocks == 16)
    simulation.run([])


def test_who_is_at_its_cap_holds_nobody_up() -> None:
    simulation = Simulation(policy(**CAPS), ROOMY)
    for name in "aaaaab":
        simulation.add(tenant(name))
    simulation.step()
    assert seats(simulation) == {"a": 1, "b": 1}
    assert len(simulation.waiting) == 4
    simulation.run([])


def test_without_a_cap_nobody_is_held_back() -> None:
    simulation = Simulation(policy(), ROOMY)
    for name in "aaaab":
        simulation.add(tenant(name))
    simulation.step()
    assert seats(simulation) == {"a": 4, "b": 1}


def test_tiers_are_counted_instead_of_tenants() -> None:
    simulation = Simulation(policy(by="tier", caps={"tier of a": 2}), ROOMY)
    for name in "aaaab":
        simulation.add(tenant(name))
    simulation.step()
    assert seats(simulation) == {"a": 2, "b": 1}


@pytest.mark.parametrize("seed", range(3))
def test_between_tenants_it_is_nearly_first_come_first_served(seed: int) -> None:
    """Waits differ from those in one queue for all by the time of a few requests at most."""
    random = Random(seed)
    names = [random.choice("abcd") for _ in range(200)]
    jobs = [tenant(name, at=0.002 * number) for number, name in enumerate(names)]
    records = Simulation(policy(), replace(ROOMY, max_seqs=2)).run(jobs)
    delays = [one.waited for one in records]
    fair = Simulation(lambda context: [], replace(ROOMY, max_seqs=2)).run(jobs)
    worst = max(abs(mine - theirs.waited) for mine, theirs in zip(delays, fair, strict=True))
    assert worst < 0.3


def test_a_tenant_that_always_sends_starves_nobody() -> None:
    simulation = Simulation(policy(), replace(ROOMY, max_seqs=1))
    for _ in range(50):
        simulation.add(tenant("busy"))
    other = simulation.add(tenant("other"))
    for number in range(2000):
        if number % 2 == 0:
            simulation.add(tenant("busy"))
        simulation.step()
    assert other.ended is not None


def test_the_laws_hold() -> None:
    check_scheduler(policy(cap=2), examples=5, steps=20)
