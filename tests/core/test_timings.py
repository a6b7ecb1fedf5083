"""What the engine measures of each answer, by a clock that moves one second per step."""

from collections.abc import Sequence

import pytest

from jackfield.core.api import FinishReason, LoadView, RequestView, Verdict
from jackfield.core.bounds import token_bounds
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.messages import Delta
from jackfield.core.engine.snapshot import take_snapshot
from jackfield.core.engine.timings import Timings
from jackfield.core.histogram import Histogram
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, make_engine, request


def stepped(engine: Engine, clock: ManualClock, steps: int = 99) -> list[Delta]:
    """A second passes before each step."""
    found: list[Delta] = []
    for _ in range(steps):
        if not engine.has_work:
            break
        clock.advance(1.0)
        found += engine.step()
    return found


def last(deltas: Sequence[Delta], name: str, index: int = 0) -> Timings:
    """What came with the end of an answer."""
    (found,) = [d for d in deltas if (d.id, d.index) == (name, index) and d.finish is not None]
    assert found.timings is not None
    return found.timings


def sums(engine: Engine) -> dict[str, tuple[int, float]]:
    """Name -> how many were counted, and their sum."""
    found = take_snapshot(engine).distributions
    return {name: (sum(counts.counts), counts.total) for name, counts in found.items()}


def test_an_answer_that_runs_at_once() -> None:
    """A prompt of 40 needs three steps of 16 positions; then there is a token each second."""
    clock = ManualClock()
    engine = make_engine(Sizes(), clock=clock)
    clock.advance(100.0)
    engine.add(request("a", range(40), GREEDY.with_(max_tokens=5)))
    deltas = stepped(engine, clock)
    assert [delta.timings is not None for delta in deltas] == [True, False, False, False, True]
    assert last(deltas, "a") == Timings(1.0, 3.0, 7.0, 7.0, 0, 0, 40)
    found = sums(engine)
    assert found["queue_seconds"] == (1, 1.0)
    assert found["prefill_seconds"] == (1, 2.0)
    assert found["decode_seconds"] == (1, 4.0)
    assert found["inference_seconds"] == (1, 6.0)
    assert found["request_seconds"] == (1, 7.0)
    assert found["seconds_per_token"] == (1, 1.0)
    assert found["prompt_tokens"] == found["computed_prompt_tokens"] == (1, 40)
    assert found["output_tokens"] == found["max_tokens"] == found["longest_answer"] == (1, 5)
    assert found["answers"] == (1, 1)
    assert found["step_tokens"] == (7, 44)


def test_who_waits_for_a_seat_waited() -> None:
    clock = ManualClock()
    engine = make_engine(Sizes(max_seqs=1), clock=clock)
    engine.add(request("a", [1], GREEDY.with_(max_tokens=4)))
    engine.add(request("b", [1], GREEDY.with_(max_tokens=1)))
    deltas = stepped(engine, clock)
    assert last(deltas, "b") == Timings(5.0, 5.0, 5.0, 5.0, 0, 0, 1)


def test_answers_to_one_prompt_compute_it_once() -> None:
    clock = ManualClock()
    engine = make_engine(Sizes(max_tokens=32), clock=clock)
    engine.add(request("a", range(13), GREEDY.with_(n=3, max_tokens=2)))
    deltas = stepped(engine, clock)
    counts = [last(deltas, "a", index)[-2:] for index in range(3)]
    assert counts == [(0, 13), (12, 1), (12, 1)]
    now, found = take_snapshot(engine), sums(engine)
    assert (now.computed_prompt_tokens, now.cached_prompt_tokens) == (15, 24)
    assert found["answers"] == (1, 3)
    assert found["longest_answer"] == (1, 2)
    assert found["output_tokens"] == (3, 6)


def test_preemptions_are_told_with_the_next_token_and_computed_positions_count_once() -> None:
    clock = ManualClock()
    engine = make_engine(Sizes(num_blocks=8, max_tokens=32), clock=clock)
    for name in "ab":
        engine.add(request(name, range(12), GREEDY.with_(max_tokens=16)))
    deltas = stepped(engine, clock)
    assert engine.metrics.preemptions > 0
    assert last(deltas, "a")[4:] == (0, 0, 12)
    assert last(deltas, "b")[4:] == (engine.metrics.preemptions, 0, 12)
    told = [delta.timings for delta in deltas if delta.id == "b" and delta.timings is not None]
    numbers = [timings.num_preemptions for timings in told]
    assert numbers == [*range(engine.metrics.preemptions + 1), engine.metrics.preemptions]
    assert sums(engine)["preemptions"] == (2, engine.metrics.preemptions)
    assert engine.metrics.computed_prompt_tokens == 24


def test_what_never_happened_has_no_time() -> None:
    class Full:
        def admit(self, requests: Sequence[RequestView], load: LoadView) -> list[Verdict]:
            return [
                Verdict.reject("full") if one.id == "r" else Verdict.accept() for one in requests
            ]

    clock = ManualClock()
    engine = make_engine(Sizes(max_seqs=1), clock=clock, advisors={"full": Full()})
    for name in "abr":
        engine.add(request(name, range(40)))
    deltas = stepped(engine, clock, 2)
    engine.abort("a")
    engine.abort("b")
    deltas += stepped(engine, clock)
    assert last(deltas, "r") == Timings(None, None, None, 1.0, 0, 0, 0)
    assert last(deltas, "a") == Timings(1.0, None, None, 2.0, 0, 0, 32)
    assert last(deltas, "b") == Timings(None, None, None, 2.0, 0, 0, 0)
    now = take_snapshot(engine)
    assert (now.finished, now.rejections) == ({"abort": 2, "error": 1}, {"full": 1})
    assert now.computed_prompt_tokens == 0
    assert {name for name, found in sums(engine).items() if found[0]} == {"step_tokens"}


def test_an_answer_that_its_text_ended_is_no_aborted_one() -> None:
    clock = ManualClock()
    engine = make_engine(Sizes(), clock=clock)
    engine.add(request("a", [1]))
    deltas = stepped(engine, clock, 3)
    clock.advance(1.0)
    engine.abort("a", 0, FinishReason.STOP)
    deltas += stepped(engine, clock)
    assert last(deltas, "a") == Timings(1.0, 1.0, 3.0, 4.0, 0, 0, 1)
    assert engine.metrics.finished == {"stop": 1}
    assert sums(engine)["request_seconds"] == (1, 4.0)


def test_a_histogram_counts_values_up_to_and_with_its_bounds() -> None:
    histogram = Histogram((1, 2.5, 10))
    for value in (0.0, 1.0, 1.1, 2.5, 9.0, 11.0, 1e9):
        histogram.add(value)
    before = histogram.counts()
    histogram.add(3.0)
    assert before.counts == [2, 2, 1, 2]
    assert before.total == pytest.approx(1e9 + 24.6)


@pytest.mark.parametrize(
    ("most", "bounds"), [(1, (1,)), (10, (1, 2, 5, 10)), (99, (1, 2, 5, 10, 20, 50)), (0, ())]
)
def test_bounds_of_tokens_end_at_the_longest(most: int, bounds: tuple[int, ...]) -> None:
    assert token_bounds(most) == bounds
