"""Advisors that let a request in for a shorter answer."""

from typing import Any

import pytest

from jackfield.core.api import FinishReason, Verdict, VerdictKind
from jackfield.core.engine.decisions import Action
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, expected_answer, make_engine, request, run


class Says:
    """The same verdict for everybody."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict

    def admit(self, requests: Any, load: Any) -> list[Any]:
        return [self.verdict] * len(requests)


def answered(*verdicts: Any, **params: Any) -> Any:
    advisors = {f"says{number}": Says(verdict) for number, verdict in enumerate(verdicts)}
    engine = make_engine(advisors=advisors)
    engine.add(request("r", [1, 2, 3], GREEDY.with_(**{"max_tokens": 20, **params})))
    return engine, run(engine)[("r", 0)]


def notes(engine: Any) -> list[tuple[str, str]]:
    return [(d.reason, d.plugin) for d in engine.explain("r") if d.action is Action.DEGRADE]


def test_the_answer_is_shorter_and_the_log_says_so() -> None:
    engine, answer = answered(Verdict.degrade(5, "busy"))
    assert answer.tokens == expected_answer([1, 2, 3], 5)
    assert answer.finish is FinishReason.LENGTH
    assert notes(engine) == [("busy: at most 5 tokens", "says0")]


@pytest.mark.parametrize("order", [(9, 5), (5, 9)])
def test_the_smaller_of_two_holds(order: tuple[int, int]) -> None:
    engine, answer = answered(*(Verdict.degrade(most) for most in order))
    assert len(answer.tokens) == 5
    assert notes(engine) == [("degraded: at most 5 tokens", f"says{order.index(5)}")]


def test_it_lies_between_accepting_and_deferring() -> None:
    assert VerdictKind.ACCEPT < VerdictKind.DEGRADE < VerdictKind.DEFER < VerdictKind.REJECT
    _, answer = answered(Verdict.accept(), Verdict.degrade(5), Verdict.accept())
    assert len(answer.tokens) == 5
    _, answer = answered(Verdict.degrade(5), Verdict.reject("full"))
    assert answer.finish is FinishReason.ERROR and not answer.tokens


def test_an_answer_is_never_made_longer() -> None:
    engine, answer = answered(Verdict.degrade(1000))
    assert len(answer.tokens) == 20 and notes(engine) == []
    engine, answer = answered(Verdict.degrade(5), max_tokens=0)
    assert answer.tokens == [] and notes(engine) == []


def test_min_tokens_are_kept() -> None:
    engine, answer = answered(Verdict.degrade(5), min_tokens=7)
    assert len(answer.tokens) == 7 and notes(engine) == [("degraded: at most 7 tokens", "says0")]


def test_a_deferred_request_can_be_degraded_later() -> None:
    class Later(Says):
        def admit(self, requests: Any, load: Any) -> list[Any]:
            return [Verdict.defer(5.0) if load.now < 5 else Verdict.degrade(3)] * len(requests)

    clock = ManualClock()
    engine = make_engine(Sizes(), advisors={"later": Later(None)}, clock=clock)
    engine.add(request("r", [1, 2, 3]))
    engine.step()
    clock.advance(5.0)
    assert len(run(engine)[("r", 0)].tokens) == 3


@pytest.mark.parametrize("most", [0, -1, None, 1.5, True, float("nan")])
def test_a_limit_that_is_none_is_a_fault(most: Any) -> None:
    engine, answer = answered(Verdict.degrade(most))
    assert len(answer.tokens) == 20 and engine.fault_counts() == {"says0": 1}
