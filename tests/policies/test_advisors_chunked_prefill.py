"""Chunks of prompts on a machine with known step times: answers flow, prompts progress."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from jackfield.core.api import LoadView, PolicyContext, Shape, StepView
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, context_for
from jackfield.core.testing.simulation import Job, Machine, Simulation
from jackfield.plugins.schedulers.chunked_prefill import ChunkedPrefill, ChunkedPrefillConfig

SIZES = Sizes(8192, 16, max_tokens=8192, max_seqs=64, max_model_len=16_384)
MACHINES = [
    (Machine(), 0.08),
    (Machine(2e-3, 5e-5, 5e-9, 2e-5), 0.04),
    (Machine(1e-3, 0.0, 1e-8, 1e-4), 0.08),
]
WARM = 60


def load() -> list[Job]:
    """Short questions with long answers all the time, and a long prompt now and then."""
    random = Random(1)
    chats = [Job(n * 0.08, random.randint(20, 200), random.randint(60, 200)) for n in range(120)]
    return chats + [Job(2.0 + n * 1.5, 6000, 20) for n in range(5)]


def chunked(target: float) -> Any:
    def make(context: PolicyContext) -> Mapping[str, Any]:
        return {"chunked": ChunkedPrefill(ChunkedPrefillConfig(inter_token=target), context)}

    return make


@pytest.mark.parametrize(("machine", "target"), MACHINES)
@pytest.mark.parametrize("overlap", [0, 1])
def test_steps_with_answers_end_in_time(machine: Machine, target: float, overlap: int) -> None:
    sizes = Sizes(8192, 16, 8192, 64, 16_384, overlap)
    limited = Simulation(sizes, advisors=chunked(target), machine=machine)
    free = Simulation(sizes, machine=machine)
    courses, others = limited.run(load()), free.run(load())
    assert all(len(course.times) == course.job.answer for course in courses), "prompts progress"
    steps = [step.seconds for step in limited.executor.steps[WARM:] if step.decodes]
    in_time = sum(seconds <= target for seconds in steps) / len(steps)
    assert in_time >= 0.95
    late = [step.seconds for step in free.executor.steps[WARM:] if step.decodes]
    assert max(late) > 2 * target, "without it, long prompts hold answers up"
    assert worst_gap(courses) < worst_gap(others) / 2
    assert limited.clock.now() <= free.clock.now() * 1.1, "the work takes as long as before"


def worst_gap(courses: Any) -> float:
    """The longest pause between two tokens of an answer, after the first seconds."""
    return max(
        later - sooner
        for course in courses
        for sooner, later in zip(course.times, course.times[1:], strict=False)
        if sooner > 2.0
    )


def test_a_saturated_machine_does_as_much_as_without_limits() -> None:
    random = Random(2)
    jobs = [Job(0.0, random.randint(100, 2000), random.randint(20, 100)) for _ in range(200)]
    limited, free = Simulation(SIZES, advisors=chunked(0.08)), Simulation(SIZES)
    limited.run(jobs)
    free.run(jobs)
    assert limited.clock.now() <= free.clock.now() * 1.1


def test_without_answers_there_is_no_limit() -> None:
    policy = ChunkedPrefill(ChunkedPrefillConfig(), context_for(SIZES, ManualClock()))
    assert policy.shape(step(decodes=0)) == Shape()
    assert policy.shape(step(decodes=1)) == Shape(prefill_tokens=256)
    simulation = Simulation(SIZES, advisors=chunked(1e-3))
    simulation.run([Job(0.0, 8000, 1)])
    assert [ran.prefill for ran in simulation.executor.steps] == [8000]


def test_prompts_progress_where_answers_alone_take_too_long() -> None:
    """Each step takes 5 ms at least, so a target of 1 ms leaves the least."""
    simulation = Simulation(SIZES, advisors=chunked(1e-3))
    courses = simulation.run([Job(0.0, 10, 400), Job(0.2, 1000, 1)])
    assert all(course.ended for course in courses)
    chunks = [ran.prefill for ran in simulation.executor.steps if ran.decodes and ran.prefill]
    assert chunks[1:-1] and set(chunks[1:-1]) == {16}


class Guess:
    """A prediction that prompts cost nothing."""

    def step_seconds(self, decodes: int, context_tokens: int, prefill_tokens: int) -> float:
        return 0.0

    def tokens_within(self, seconds: float, decodes: int, context_tokens: int) -> int:
        return 2**31


def test_a_chunk_at_most_doubles() -> None:
    context = context_for(SIZES, ManualClock())
    context.predict = Guess()
    policy = ChunkedPrefill(ChunkedPrefillConfig(first=100), context)
    found = [policy.shape(step(decodes=1)).prefill_tokens for _ in range(4)]
    assert found == [200, 400, 800, 1600]


def step(decodes: int) -> StepView:
    return StepView(LoadView(0.0, 0, 0, decodes, 0, 8, 8, 0, {}), 0, decodes, 100 * decodes, 5000)
