"""Nothing that waits stops the others, and nothing waits for what cannot come."""

from collections.abc import Sequence
from typing import Any

import pytest

from jackfield.core.api import (
    FinishReason,
    NeverFits,
    PlanBuilder,
    RequestView,
    Shape,
    StepView,
    Verdict,
)
from jackfield.core.engine.decisions import Action
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, expected_answer, make_engine, request, run

EXACT = GREEDY.with_(ignore_eos=True)


def test_what_outgrows_the_pool_is_refused_and_the_others_finish() -> None:
    sizes = Sizes(num_blocks=8, block_size=16, max_tokens=64, max_seqs=4, max_model_len=1024)
    engine = make_engine(sizes)
    with pytest.raises(NeverFits, match=r"needs 13 KV blocks of 16; .* has 8"):
        engine.add(request("huge", [1] * 200, EXACT.with_(max_tokens=1)))
    for number in range(10):
        engine.add(request(f"r{number}", [number] * 20))
    answers = run(engine)
    assert len(answers) == 10 and all(len(one.tokens) == 8 for one in answers.values())


@pytest.mark.parametrize("prompt", range(1, 33))
@pytest.mark.parametrize("most", [None, 1, 10, 33])
def test_whatever_is_let_in_fits_alone(prompt: int, most: int | None) -> None:
    """At a pool of two blocks: refused at the door, or served to its end, never in between."""
    engine = make_engine(Sizes(num_blocks=2, block_size=16, max_tokens=64, max_model_len=256))
    length = prompt + (1 if most is None else most)
    try:
        engine.add(request("r", [1] * prompt, EXACT.with_(max_tokens=most)))
    except NeverFits as error:
        assert length > 32 and "has 2" in str(error)
        return
    assert length <= 32
    [answer] = run(engine).values()
    assert answer.finish is FinishReason.LENGTH and answer.error is None
    assert len(answer.tokens) == (32 - prompt if most is None else most)
    assert engine.metrics.preemptions == 0


class Defers:
    """Never ready for some."""

    def admit(self, requests: Sequence[RequestView], load: Any) -> list[Verdict]:
        return [
            Verdict.defer(load.now + 1.0, "not_ready") if one.id.startswith("p")
            else Verdict.accept()
            for one in requests
        ]  # fmt: skip


def test_parked_requests_take_no_seats_and_end_with_the_reason() -> None:
    clock = ManualClock()
    sizes = Sizes(max_seqs=4, num_blocks=64, park_timeout=30.0)
    engine = make_engine(sizes, advisors={"defers": Defers()}, clock=clock)
    for number in range(4):
        engine.add(request(f"p{number}", [1, 2]))
    engine.step()
    for number in range(6):
        engine.add(request(f"r{number}", [number]))
    done: dict[str, Any] = {}
    for _ in range(60):
        done.update({one.id: one for one in engine.step() if one.finish is not None})
    assert {name for name in done if name.startswith("r")} == {f"r{n}" for n in range(6)}
    assert not {name for name in done if name.startswith("p")}
    assert engine.is_idle and engine.next_alarm is not None
    while engine.has_work:
        clock.advance(max((engine.next_alarm or 0.0) - clock.now(), 0.0))
        done.update({one.id: one for one in engine.step() if one.finish is not None})
    assert 30.0 < clock.now() < 33.0
    for number in range(4):
        error = done[f"p{number}"].error
        assert error == "deferred by defers for more than 30 s: not_ready"


class Empty:
    """Plans nothing, for ever."""

    def plan(self, step: StepView, planner: PlanBuilder) -> None:
        return None


@pytest.mark.parametrize("overlap", [0, 1])
def test_an_empty_plan_is_filled_in_the_same_step(overlap: int) -> None:
    engine = make_engine(Sizes(overlap=overlap), advisors={"empty": Empty()})
    engine.add(request("r", [1, 2, 3], EXACT))
    steps = 0
    tokens: list[int] = []
    while engine.has_work:
        tokens += [token for delta in engine.step() for token in delta.tokens]
        steps += 1
    assert tokens == expected_answer([1, 2, 3], 8)
    assert steps <= 8 + overlap, "a step was lost"
    assert engine.metrics.policy_stalls["empty"] == 8


class Promises:
    """Refuses all that the core could still take."""

    def shape(self, step: StepView) -> Shape:
        return Shape(new_seqs=0, reserve_blocks=10**6)


def test_nobody_runs_so_somebody_is_admitted_whatever_is_reserved() -> None:
    engine = make_engine(advisors={"promises": Promises()})
    for number in range(5):
        engine.add(request(f"r{number}", [number]))
    while engine.has_work:
        idle = not engine.lifecycle.planner.running
        before = engine.metrics.admissions
        engine.step()
        assert not idle or engine.metrics.admissions > before
    assert engine.metrics.finished["length"] == 5


def test_a_head_that_lacks_blocks_is_told_once() -> None:
    """Half again as much as can be served, for long: what is written down stays in proportion."""
    engine = make_engine(Sizes(num_blocks=12, block_size=4, max_seqs=4, max_model_len=48))
    for number in range(300):
        if number % 3 == 0:
            engine.add(request(f"r{number}", [number % 9] * 16, EXACT.with_(max_tokens=12)))
        engine.step()
    waits = [(one.request, one.code) for one in engine.log._ring if one.action is Action.WAIT]
    assert 10 < len(waits) < 150, "of 300 steps, nearly all with a queue"
    assert max(waits.count(one) for one in waits) <= 1 + engine.metrics.preemptions
    run(engine)
