"""The engine ends every answer once: a name is free again only because of that."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from jackfield.core.api import EngineStoppedError, RequestError, SamplingParams, Verdict
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.messages import Delta
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, make_engine, request
from jackfield.core.testing.failing_executor import FailingExecutor

LONG = SamplingParams(temperature=0, max_tokens=40, n=2)
OVERLAPS = pytest.mark.parametrize("overlap", [0, 1, 2])
EndOf = Counter[tuple[str, int]]


class Ears:
    """Steps an engine and counts what it says."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ends: EndOf = Counter()
        self.reasons: list[str] = []

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            for delta in self.engine.step():
                self._hear(delta)
            self.engine.check()

    def _hear(self, delta: Delta) -> None:
        answer = (delta.id, delta.index)
        assert not self.ends[answer], f"{answer} has news after its end"
        if delta.finish is not None:
            self.ends[answer] += 1
            self.reasons.append(delta.finish.value)

    def until(self, condition: Callable[[], Any]) -> None:
        for _ in range(200):
            if condition():
                return
            self.step()
        raise AssertionError("it did not happen")

    def drain(self) -> EndOf:
        self.until(lambda: not self.engine.has_work)
        return self.ends


def started(overlap: int = 0, executor: Any = None, **more: Any) -> Ears:
    sizes = Sizes(**{"overlap": overlap, **more.pop("sizes", {})})
    return Ears(make_engine(sizes, executor=executor, **more))


def both(*names: str) -> EndOf:
    return Counter({(name, index): 1 for name in names for index in range(2)})


@OVERLAPS
@pytest.mark.parametrize("steps", range(7))
@pytest.mark.parametrize("length", [3, 40])
def test_aborted_at_any_step(overlap: int, steps: int, length: int) -> None:
    """Just arrived, parked behind the prompt of the first answer, in a prompt, in flight."""
    ears = started(overlap)
    ears.engine.add(request("a", [5] * length, LONG))
    ears.step(steps)
    ears.engine.abort("a")
    ears.engine.abort("a")
    assert ears.drain() == both("a")
    assert ears.reasons == ["abort", "abort"]
    assert ears.engine.metrics.finished == {"abort": 2}


@OVERLAPS
def test_aborted_one_by_one_and_after_the_end(overlap: int) -> None:
    ears = started(overlap)
    ears.engine.add(request("a", [5, 6], LONG.with_(max_tokens=5)))
    ears.step(3)
    ears.engine.abort("a", 1)
    ears.engine.abort("a", 1)
    assert ears.drain() == both("a")
    ears.engine.abort("a")
    assert ears.drain() == both("a")
    assert sorted(ears.reasons) == ["abort", "length"]


@OVERLAPS
def test_aborted_in_the_queue(overlap: int) -> None:
    ears = started(overlap, sizes={"max_seqs": 1})
    ears.engine.add(request("a", [5, 6], LONG))
    ears.engine.add(request("b", [7, 8], LONG))
    ears.until(lambda: len(ears.engine.lifecycle.tree) == 2)
    ears.engine.abort("b")
    ears.step()
    assert ears.ends == both("b")
    assert ears.drain() == both("a", "b")


class Judge:
    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict

    def admit(self, requests: Any, load: Any) -> list[Verdict]:
        return [self._verdict for _ in requests]


def test_aborted_behind_a_gate() -> None:
    ears = started(advisors={"judge": Judge(Verdict.defer(until=5.0, code="later"))})
    ears.engine.add(request("a", [5, 6], LONG))
    ears.step()
    assert len(ears.engine.lifecycle.gates) == 2
    ears.engine.abort("a")
    assert ears.drain() == both("a")


def test_deferred_for_too_long() -> None:
    clock = ManualClock()
    ears = started(advisors={"judge": Judge(Verdict.defer(until=1e9, code="x"))}, clock=clock)
    ears.engine.add(request("a", [5, 6], LONG))
    ears.step()
    clock.advance(1e6)
    assert ears.drain() == both("a")
    assert ears.reasons == ["error", "error"]


def test_refused_by_a_policy() -> None:
    ears = started(advisors={"judge": Judge(Verdict.reject("no"))})
    ears.engine.add(request("a", [5, 6], LONG))
    assert ears.drain() == both("a")
    assert ears.reasons == ["error", "error"]


def test_refused_at_the_door() -> None:
    """It was never taken, so it has no end: the caller gets the error instead."""
    ears = started()
    for wrong in ([], [5] * 200, [-1]):
        with pytest.raises(RequestError):
            ears.engine.add(request("a", wrong, LONG))
    ears.engine.add(request("a", [5], LONG))
    with pytest.raises(RequestError, match="in use"):
        ears.engine.add(request("a", [5], LONG))
    assert ears.drain() == both("a")


@OVERLAPS
def test_aborted_after_a_preemption(overlap: int) -> None:
    ears = started(overlap, sizes={"num_blocks": 12, "block_size": 2, "max_model_len": 24})
    params = LONG.with_(max_tokens=18)
    for name in "abc":
        ears.engine.add(request(name, [5, 6, 7], params))
    ears.until(lambda: ears.engine.metrics.preemptions)
    for name in "abc":
        ears.engine.abort(name)
    assert ears.drain() == both("a", "b", "c")


@OVERLAPS
@pytest.mark.parametrize("place", ["forward", "sample", "collect"])
def test_a_step_that_fails(overlap: int, place: str) -> None:
    executor = FailingExecutor(4, **{place: {3}})
    ears = started(overlap, executor)
    ears.engine.add(request("a", [5, 6], LONG))
    ears.step(3)
    ears.engine.abort("a", 1)
    assert ears.drain() == both("a")
    assert sorted(ears.reasons) == ["abort", "error"]


class Stopping(FailingExecutor):
    def collect(self, ticket: Any) -> Any:
        if ticket.plan.number == 3:
            raise EngineStoppedError("the device is lost")
        return super().collect(ticket)


@OVERLAPS
def test_a_device_that_is_lost(overlap: int) -> None:
    ears = started(overlap, Stopping(4), sizes={"max_seqs": 2})
    for name in "abc":
        ears.engine.add(request(name, [5, 6], LONG))
    assert ears.drain() == both("a", "b", "c")
    assert ears.reasons == ["error"] * 6
    with pytest.raises(EngineStoppedError, match="the device is lost"):
        ears.engine.add(request("d", [5], LONG))
