"""A step that runs out of memory costs its own requests, and makes steps smaller."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jackfield.core.api import FinishReason, PlanBuilder, SamplingParams, StepView
from jackfield.core.engine.decisions import Action
from jackfield.core.engine.shrinking import is_out_of_memory
from jackfield.core.engine.steps import Late, StepPlan, StepResult
from jackfield.core.testing.engines import (
    VOCAB,
    Answer,
    Sizes,
    absorb,
    expected_answer,
    make_engine,
    request,
    run,
)
from jackfield.core.testing.fake_executor import FakeExecutor, Ticket

SIZES = Sizes(num_blocks=64, max_tokens=32, max_seqs=4)
LONG = list(range(60))
TEXT = "CUDA out of memory. Tried to allocate 2.00 GiB."


def shortage() -> Exception:
    return RuntimeError(TEXT)


class SmallDevice(FakeExecutor):
    """Has memory for steps of so many tokens; says so in one of its phases."""

    def __init__(
        self, room: int, phase: str = "forward", error: Callable[[], Exception] = shortage
    ) -> None:
        super().__init__(SIZES.block_size, VOCAB)
        self._room, self._phase, self._error = room, phase, error
        self.steps: list[int] = []
        self.released = 0

    def _check(self, phase: str, plan: StepPlan) -> None:
        if phase == self._phase and plan.num_tokens > self._room:
            raise self._error()

    def forward(self, plan: StepPlan) -> Ticket:
        self.steps.append(plan.num_tokens)
        ticket = super().forward(plan)
        self._check("forward", plan)
        return ticket

    def sample(self, ticket: Ticket, late: Late) -> None:
        self._check("sample", ticket.plan)
        super().sample(ticket, late)

    def collect(self, ticket: Ticket) -> StepResult:
        self._check("collect", ticket.plan)
        return super().collect(ticket)

    def release_cached(self) -> None:
        self.released += 1


@pytest.mark.parametrize("phase", ["forward", "sample", "collect"])
@pytest.mark.parametrize("overlap", [0, 1])
def test_the_step_fails_alone_and_later_ones_fit(phase: str, overlap: int) -> None:
    device = SmallDevice(20, phase)
    engine = make_engine(replace(SIZES, overlap=overlap), executor=device)
    engine.add(request("large", [*LONG, 1, 2, 3, 4]))
    answers: dict[tuple[str, int], Answer] = {}
    absorb(answers, engine.step())
    for name in ("b", "c", "d"):
        engine.add(request(name, [*LONG, ord(name)]))
    rest = run(engine)
    answers.update(rest)
    failed = answers["large", 0]
    assert failed.finish is FinishReason.ERROR and not failed.tokens
    assert failed.error is not None and f"RuntimeError: {TEXT}" in failed.error
    for name in ("b", "c", "d"):
        assert rest[name, 0].tokens == expected_answer([*LONG, ord(name)], 8)
    in_flight = sum(tokens > 20 for tokens in device.steps)
    assert engine.metrics.out_of_memory_steps == engine.metrics.failed_steps == in_flight
    assert device.released == in_flight
    assert engine._planner.limits.max_tokens == 16


def test_steps_that_were_planned_before_do_not_count_again() -> None:
    device = SmallDevice(20, "collect")
    engine = make_engine(replace(SIZES, overlap=2), executor=device)
    engine.add(request("large", [*LONG, *LONG[:30]]))
    run(engine)
    assert device.steps == [32, 32, 26] and engine.metrics.out_of_memory_steps == 3
    assert engine._planner.limits.max_tokens == 16


def test_a_step_always_has_a_token_for_each_seat() -> None:
    device = SmallDevice(0)
    engine = make_engine(SIZES, executor=device)
    for number in range(6):
        engine.add(request(f"r{number}", LONG))
        run(engine)
    assert device.steps == [32, 16, 8, 4, 4, 4]
    assert "stays 4 tokens" in engine.faults()["core"]


def test_decodes_go_on_beside_smaller_prompts() -> None:
    device = SmallDevice(8)
    engine = make_engine(SIZES, executor=device)
    engine.add(request("large", LONG))
    run(engine)
    engine.add(request("larger", LONG))
    run(engine)
    long = SamplingParams(temperature=0.0, max_tokens=30)
    for number in range(6):
        engine.add(request(f"r{number}", LONG[number:], long))
    answers = run(engine)
    for number in range(6):
        assert answers[f"r{number}", 0].tokens == expected_answer(LONG[number:], 30)
    assert device.steps[2:] and max(device.steps[2:]) == 8


def test_a_plan_hook_is_offered_no_more_than_is_left() -> None:
    offered: list[int] = []

    class Hand:
        def plan(self, view: StepView, planner: PlanBuilder) -> bool:
            offered.append(planner.tokens_left)
            return False

    engine = make_engine(SIZES, executor=SmallDevice(20), advisors={"hand": Hand()})
    engine.add(request("large", LONG))
    run(engine)
    engine.add(request("larger", LONG))
    run(engine)
    assert offered[0] == 32 and set(offered[1:]) == {16}


def test_an_operator_is_told() -> None:
    engine = make_engine(SIZES, executor=SmallDevice(20))
    assert engine.faults() == {}
    engine.add(request("large", LONG))
    run(engine)
    reason = "the largest step is now 16 tokens: step 0 ran out of memory (it had 32)"
    assert engine.faults() == {"core": reason}
    [decision] = [one for one in engine.log.of("") if one.action is Action.FAULT]
    assert (decision.reason, decision.plugin, decision.code) == (reason, "core", "out_of_memory")


def test_a_device_without_a_cache_is_served_too() -> None:
    class Bare(SmallDevice):
        release_cached: Any = None

    engine = make_engine(SIZES, executor=Bare(20))
    engine.add(request("large", LONG))
    run(engine)
    assert engine._planner.limits.max_tokens == 16


def test_what_a_step_held_is_let_go() -> None:
    """Frames of a traceback would keep its tensors while the device is to give memory back."""
    held: list[bool] = []

    class Tensor:
        def __del__(self) -> None:
            held.append(True)

    class Keeping(SmallDevice):
        def _check(self, phase: str, plan: StepPlan) -> None:
            tensor = Tensor()
            super()._check(phase, plan)
            del tensor
            held.clear()

        def release_cached(self) -> None:
            assert held == [True]
            super().release_cached()

    device = Keeping(20)
    engine = make_engine(SIZES, executor=device)
    engine.add(request("large", LONG))
    run(engine)
    assert device.released == 1


def test_other_faults_leave_the_size_alone() -> None:
    device = SmallDevice(20, error=lambda: RuntimeError("an index is out of bounds"))
    engine = make_engine(SIZES, executor=device)
    engine.add(request("large", LONG))
    run(engine)
    assert engine.metrics.failed_steps == 1 and engine.metrics.out_of_memory_steps == 0
    assert engine._planner.limits.max_tokens == 32
    assert not engine.faults() and not device.released


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"), True),
        (RuntimeError("HIP out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: Cannot allocate memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("out of memory"), False),
        (KeyError("k"), False),
    ],
)
def test_what_counts_as_out_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
