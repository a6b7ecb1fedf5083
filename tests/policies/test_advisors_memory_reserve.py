"""Blocks kept free for answers that grow: fewer preemptions, hardly less work done."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from jackfield.core.api import (
    Event,
    EventKind,
    LoadView,
    PolicyContext,
    RequestContext,
    StepView,
)
from jackfield.core.engine.request import Request
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for
from jackfield.core.testing.simulation import Course, Job, Simulation
from jackfield.plugins.schedulers.memory_reserve import MemoryReserve, MemoryReserveConfig

SIZES = Sizes(200, 16, max_tokens=2048, max_seqs=64, max_model_len=4096)


def reserving(**config: Any) -> Any:
    def make(context: PolicyContext) -> Mapping[str, Any]:
        return {"reserve": MemoryReserve(MemoryReserveConfig(**config), context)}

    return make


def heavy_tailed(seed: int, gap: float) -> list[Job]:
    """Answers of 30 tokens and more, some of 1500; all may have 2000."""
    random = Random(seed)
    return [
        Job(n * gap, random.randint(20, 200), min(int(30 * random.paretovariate(1.1)), 1500), 2000)
        for n in range(300)
    ]


@pytest.mark.parametrize("gap", [0.0, 0.02])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_preemptions_fall_and_the_work_takes_as_long(seed: int, gap: float) -> None:
    jobs = heavy_tailed(seed, gap)
    free, reserve = Simulation(SIZES), Simulation(SIZES, advisors=reserving())
    before, courses = free.run(jobs), reserve.run(jobs)
    assert all(len(one.times) == one.job.answer for one in courses)
    assert free.engine.metrics.preemptions > 100
    assert reserve.engine.metrics.preemptions <= 0.2 * free.engine.metrics.preemptions
    assert most_tokens(courses) <= 1.1 * most_tokens(before)


def most_tokens(courses: list[Course]) -> float:
    """When nine in ten of all tokens were there; the end itself hangs on one long answer."""
    times = sorted(at for one in courses for at in one.times)
    return times[int(0.9 * len(times))]


def test_a_reserve_larger_than_the_pool_stops_nobody() -> None:
    """All answers are expected to fill the pool, after some that did: one runs after another."""
    sizes = Sizes(40, 16, max_tokens=256, max_seqs=8, max_model_len=640)
    jobs = [Job(0.0, 8, 600) for _ in range(3)] + [Job(1.0, 8, 20, 600) for _ in range(30)]
    simulation = Simulation(sizes, advisors=reserving(quantile=1.0, every=1))
    courses = simulation.run(jobs)
    assert all(len(one.times) == one.job.answer for one in courses)
    assert simulation.engine.metrics.policy_stalls == {}


def policy(quantile: float = 0.5, block_size: int = 1) -> MemoryReserve:
    sizes = Sizes(block_size=block_size)
    config = MemoryReserveConfig(quantile=quantile, every=1)
    return MemoryReserve(config, context_for(sizes, ManualClock()))


def record(handle: int, prompt: int, output: int, most: int) -> Request:
    found = Request(
        handle, f"r{handle}", 0, [1] * prompt, GREEDY, RequestContext(),
        arrival=0.0, seed=0, max_tokens=most, eos_ids=frozenset(),
    )  # fmt: skip
    found.output = [1] * output
    return found


def ended(length: int) -> Event:
    return Event(EventKind.FINISHED, record(10**6, 1, 0, 1).view, 0.0, length)


def reserve_of(one: MemoryReserve) -> int:
    """Of the running ones alone, without that for a new one."""
    view = StepView(LoadView(0.0, 0, 0, 1, 0, 1000, 1000, 0, {}), 0, 0, 0, 0)
    shape = one.shape(view)
    assert shape.reserve_blocks is not None
    return shape.reserve_blocks - expected(sorted(one._lengths), 0, 10**9, one._config.quantile)


def expected(past: list[int], length: int, most: int, quantile: float) -> int:
    """By the definition: the quantile of those that were longer."""
    longer = [other for other in past if other > length]
    if not longer:
        return min(2 * length, most)
    return min(longer[min(int(quantile * len(longer)), len(longer) - 1)], most)


@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9, 1.0])
def test_the_peak_against_a_count_step_by_step(quantile: float) -> None:
    """All running answers grow by a token at a time until they are as long as is expected."""
    random = Random(0)
    for _ in range(60):
        one = policy(quantile)
        past = [random.randint(1, 40) for _ in range(random.randint(0, 30))]
        one.observe([ended(length) for length in past])
        running = [
            record(handle, random.randint(1, 30), random.randint(0, 30), random.randint(31, 50))
            for handle in range(random.randint(0, 8))
        ]
        one.observe([Event(EventKind.ADMITTED, r.view, 0.0, 0) for r in running])
        growth = [
            expected(sorted(past), len(r.output), r.max_tokens, quantile) - len(r.output)
            for r in running
        ]
        held = [len(r.prompt) + len(r.output) for r in running]
        sums = [
            sum(h + tick for h, grows in zip(held, growth, strict=True) if grows >= tick)
            for tick in range(60)
        ]
        assert reserve_of(one) == max(max(sums) - sum(held), 0)


def test_who_was_admitted_since_the_last_look_counts_and_who_left_does_not() -> None:
    one = policy()
    one.observe([ended(10)] * 4)
    first, second = record(0, 5, 0, 100), record(1, 5, 4, 100)
    one.observe([Event(EventKind.ADMITTED, r.view, 0.0, 0) for r in (first, second)])
    assert one._reserve == 10 + 6
    assert reserve_of(one) == 12, "six each; then the second has ended"
    one.observe([Event(EventKind.PREEMPTED, first.view, 0.0, 0)])
    assert reserve_of(one) == 6


def test_only_the_last_thousand_answers_count() -> None:
    one = policy()
    one.observe([ended(900)] * 1000)
    one.observe([ended(random) for random in [10, 30] * 500])
    assert one._sorted == [10] * 500 + [30] * 500 == sorted(one._lengths)
