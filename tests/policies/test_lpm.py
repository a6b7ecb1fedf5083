"""Longest prefix match, with a cache that a test makes up."""

from dataclasses import replace
from random import Random

from jackfield.core.api import PolicyContext, RequestView
from jackfield.core.testing.jobs import ROOMY, Job, Simulation
from jackfield.core.testing.stacks import Factory
from jackfield.plugins.schedulers.fcfs import Fcfs
from jackfield.plugins.schedulers.lpm import WINDOW, Lpm

ONE = replace(ROOMY, max_seqs=1)


def policy(cached: dict[str, int]) -> Factory:
    def make(context: PolicyContext) -> list[Lpm]:
        context.cached_tokens = lambda request: cached.get(request.id, 0)
        return [Lpm(Lpm.Config(), context)]

    return make


def jobs(count: int) -> list[Job]:
    return [Job(0, 10, 1, id=f"r{number}") for number in range(count)]


def order(simulation: Simulation, jobs: list[Job]) -> list[str]:
    records = simulation.run(jobs)
    return [one.request.id for one in sorted(records, key=lambda one: one.waited)]


def test_the_longest_prefix_of_the_window_goes_first() -> None:
    """By a plain search, each time, in the first so many of who is left."""
    random = Random(0)
    cached = {f"r{number}": random.choice((0, 0, 16, 32, 48)) for number in range(120)}
    left, expected = [f"r{number}" for number in range(120)], []
    while left:
        best = max(left[:WINDOW], key=lambda name: cached[name])
        left.remove(best)
        expected.append(best)
    assert order(Simulation(policy(cached), ONE), jobs(120)) == expected
    assert expected != [f"r{number}" for number in range(120)]


def test_what_is_cached_may_change_while_they_wait() -> None:
    cached: dict[str, int] = {"r1": 16}
    simulation = Simulation(policy(cached), ONE)
    for job in jobs(4):
        simulation.add(job)
    simulation.step()
    assert simulation.records["r1"].admitted is not None
    cached["r3"] = 32
    simulation.step()
    assert simulation.records["r3"].admitted is not None
    assert simulation.records["r0"].admitted is None


def test_nobody_is_passed_over_more_often_than_the_core_allows() -> None:
    """One request without a prefix, and a stream of others that have one."""
    bound = 8 * WINDOW
    simulation = Simulation(policy({f"s{number}": 16 for number in range(1000)}), ONE)
    plain, metrics = simulation.add(Job(0, 10, 1, id="plain")), simulation.engine.metrics
    for number in range(bound + 50):
        simulation.add(Job(0, 10, 1, id=f"s{number}"))
        if number % 2:
            simulation.add(Job(0, 10, 1, id=f"s{number + 500}"))
        simulation.step()
        if plain.admitted is not None:
            break
    assert metrics.admissions == bound + 1, "it is taken when the bound is reached, not before"


def test_without_a_cache_it_is_first_come_first_served() -> None:
    def fcfs(context: PolicyContext) -> list[Fcfs]:
        return [Fcfs(Fcfs.Config(), context)]

    random = Random(1)
    many = [
        Job(random.uniform(0, 1), random.randint(1, 100), random.randint(1, 9), id=f"r{number}")
        for number in range(150)
    ]
    assert order(Simulation(policy({}), ONE), many) == order(Simulation(fcfs, ONE), many)


def test_each_waiting_request_is_asked_at_most_once_per_choice() -> None:
    asked: list[str] = []

    def make(context: PolicyContext) -> list[Lpm]:
        def cached(request: RequestView) -> int:
            asked.append(request.id)
            return 0

        context.cached_tokens = cached
        return [Lpm(Lpm.Config(), context)]

    simulation = Simulation(make, ONE)
    for job in jobs(100):
        simulation.add(job)
    simulation.step()
    assert len(asked) <= 2 * WINDOW  # for the admission, and for the next of the log
