"""Early refusal on a known machine: who is let in is in time, who is refused was late."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from jackfield.core.api import PolicyContext, RequestContext
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.simulation import Course, Job, Simulation
from jackfield.plugins.schedulers.slo_admission import SloAdmission, SloAdmissionConfig

LIMIT = 1.0
SIZES = Sizes(8192, 16, max_tokens=2048, max_seqs=256, max_model_len=8192)


def limited(**config: Any) -> Any:
    def make(context: PolicyContext) -> Mapping[str, Any]:
        return {"slo": SloAdmission(SloAdmissionConfig(**config), context)}

    return make


def load(
    seed: int, gap: float, prompt: tuple[int, int], answer: tuple[int, int], count: int = 400
) -> list[Job]:
    """Poisson arrivals, on average every `gap` seconds."""
    random, at, jobs = Random(seed), 0.0, []
    for _ in range(count):
        at += random.expovariate(1 / gap)
        jobs.append(Job(at, random.randint(*prompt), random.randint(*answer)))
    return jobs


def in_time(courses: list[Course]) -> float:
    return sum(one.first_token <= LIMIT for one in courses) / len(courses)


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_where_prompts_are_the_bottleneck(seed: int, overlap: int) -> None:
    """Each of the refused is sent once more, together with all who were let in, and is late."""
    jobs = load(seed, 0.03, (200, 1500), (5, 40))
    sizes = Sizes(8192, 16, 2048, 256, 8192, overlap)
    courses = Simulation(sizes, advisors=limited(first_token=LIMIT)).run(jobs)
    accepted = [one for one in courses if one.rejection is None]
    refused = [one for one in courses if one.rejection is not None]
    assert 10 <= len(refused) <= len(jobs) / 3
    assert in_time(accepted) >= 0.95
    assert in_time(Simulation(sizes).run(jobs)) < 0.7
    late = 0
    for one in Random(0).sample(refused, 10):
        together = [other.job for other in accepted] + [one.job]
        late += Simulation(sizes).run(together)[-1].first_token > LIMIT
    assert late >= 8
    assert all(one.rejection and 0 < one.rejection.retry_after < 0.5 for one in refused)


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(8192, 16, max_tokens=2048, max_seqs=16, max_model_len=8192),
        Sizes(220, 16, max_tokens=2048, max_seqs=256, max_model_len=2048),
    ],
    ids=["seats", "blocks"],
)
def test_where_seats_or_blocks_are_the_bottleneck(sizes: Sizes) -> None:
    """The ends of answers come as they come, so the guess is rougher, but it keeps the queue
    short."""
    jobs = load(0, 0.055, (20, 300), (50, 300))
    courses = Simulation(sizes, advisors=limited(first_token=LIMIT)).run(jobs)
    accepted = [one for one in courses if one.rejection is None]
    assert in_time(Simulation(sizes).run(jobs)) < 0.4
    assert in_time(accepted) > 0.7
    assert max(one.first_token for one in accepted) < 2 * LIMIT
    assert len(accepted) > len(jobs) / 2


def test_nobody_is_refused_by_an_idle_engine() -> None:
    """Not even who cannot be in time: a second question would get no better answer."""
    simulation = Simulation(SIZES, advisors=limited(first_token=0.01))
    jobs = [Job(n * 1.0, 2000, 3) for n in range(40)]
    assert all(one.times for one in simulation.run(jobs))


def test_without_limit_or_deadline_nobody_is_refused() -> None:
    jobs = load(0, 0.01, (500, 1500), (5, 40), count=100)
    assert all(one.times for one in Simulation(SIZES, advisors=limited()).run(jobs))


def test_tiers_and_deadlines() -> None:
    """After a warm-up ten prompts of a second in all arrive together."""
    warm = [Job(n * 0.2, 1500, 3) for n in range(20)]
    contexts = {
        "patient": RequestContext(tier="batch"),
        "hurried": RequestContext(),
        "dated": RequestContext(tier="batch", deadline=10.3),
        "late": RequestContext(tier="batch", deadline=9.0),
    }
    asked = [Job(10.0, 2000, 3, context=contexts["patient"]) for _ in range(8)]
    asked += [Job(10.0, 2000, 3, context=contexts[name]) for name in contexts]
    simulation = Simulation(SIZES, advisors=limited(first_token=0.3, tiers={"batch": 5.0}))
    found = simulation.run([*warm, *asked])[len(warm) :]
    refused = [one.rejection is not None for one in found]
    assert refused == [False] * 8 + [False, True, True, True]
    assert {one.rejection.code for one in found if one.rejection} == {"too_late"}


def test_who_comes_back_after_the_time_told_is_in_time() -> None:
    jobs = load(1, 0.03, (200, 1500), (5, 40), count=200)
    courses = Simulation(SIZES, advisors=limited(first_token=LIMIT)).run(jobs)
    refused = [one for one in courses if one.rejection is not None]
    accepted = [one.job for one in courses if one.rejection is None]
    one = refused[-1]
    assert one.rejection is not None
    before = [job for job in accepted if job.at <= one.job.at]
    again = one.job._replace(at=one.added + one.rejection.retry_after + 0.01)
    simulation = Simulation(SIZES, advisors=limited(first_token=LIMIT))
    assert simulation.run([*before, again])[-1].rejection is None
