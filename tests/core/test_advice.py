"""Folds of the advisors: the strictest holds, order never matters, nonsense counts for nothing."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.core.api import LoadView, QuotaView, Shape, StepView, Verdict, VictimView
from jackfield.core.engine.advice import Advice, Advisor
from jackfield.core.engine.guard import Guard
from jackfield.core.testing.tree_laws import make_request

LOAD = LoadView(0.0, 0, 0, 0, 0, 8, 8, 0, {})
STEP = StepView(LOAD, 0, 0, 0, 0)
PLAN = QuotaView(0.0, (), 16, 0)
VIEWS = tuple(make_request(handle).view for handle in range(3))
SHORTAGE = VictimView(0.0, 1, VIEWS)
ASK = {
    "admit": lambda advice: advice.admit(VIEWS, LOAD),
    "shape": lambda advice: advice.shape(STEP),
    "quota": lambda advice: advice.quota(PLAN),
    "victims": lambda advice: advice.victims(SHORTAGE),
}
NOTHING = {
    "admit": [(Verdict.accept(), "")] * 3,
    "shape": Shape(),
    "quota": {},
    "victims": [],
}

counts = st.none() | st.integers(0, 9)
shapes = st.builds(Shape, *[counts] * len(Shape._fields))
verdicts = st.one_of(
    st.just(Verdict.accept()),
    st.builds(Verdict.defer, st.floats(0, 9), st.sampled_from("ab")),
    st.builds(Verdict.reject, st.sampled_from("ab"), st.floats(0, 9)),
)
answers = {
    "admit": st.lists(verdicts, min_size=3, max_size=3),
    "shape": shapes,
    "quota": st.dictionaries(st.integers(0, 4), st.integers(0, 9)),
}


def advice_of(hook: str, given: Sequence[tuple[str, Any]]) -> tuple[Advice, list[Guard]]:
    advisors = [
        Advisor(name, lambda *_, answer=answer: answer, Guard(name, 3, 1.0))
        for name, answer in given
    ]
    return Advice({hook: advisors}), [advisor.guard for advisor in advisors]


@pytest.mark.parametrize("hook", sorted(answers))
@given(st.data())
def test_folds_commute(hook: str, data: st.DataObject) -> None:
    given = [(name, data.draw(answers[hook])) for name in ("x", "y", "z")]
    folded = [ASK[hook](advice_of(hook, order)[0]) for order in permutations(given)]
    assert all(one == folded[0] for one in folded)


def test_the_strictest_verdict_holds() -> None:
    late, soon, no = Verdict.defer(9.0), Verdict.defer(1.0), Verdict.reject("full")
    advice, _ = advice_of(
        "admit", [("a", [soon, late, no]), ("b", [late, no, Verdict.accept()])]
    )
    assert advice.admit(VIEWS, LOAD) == [(late, "b"), (no, "b"), (no, "a")]


def test_the_tightest_shape_holds() -> None:
    advice, _ = advice_of(
        "shape",
        [("a", Shape(tokens=9, reserve_blocks=1)), ("b", Shape(5, seqs=2, reserve_blocks=3))],
    )
    assert advice.shape(STEP) == Shape(tokens=5, seqs=2, reserve_blocks=3)


def test_the_smallest_quota_holds() -> None:
    advice, _ = advice_of("quota", [("a", {1: 5, 2: 7}), ("b", {2: 3})])
    assert advice.quota(PLAN) == {1: 5, 2: 3}


def test_victims_are_candidates_and_come_once() -> None:
    advice, guards = advice_of("victims", [("a", [2, 99, 2, -1, True, "x", 0])])
    assert advice.victims(SHORTAGE) == [(2, "a"), (0, "a")]
    assert guards[0].faults == 0


class Nasty:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    __len__ = __iter__ = __repr__ = __getattribute__


NONSENSE = {
    "admit": [
        None, 3, "abc", [Verdict.accept()], [None] * 3, [Verdict("x")] * 3, [Verdict(2)] * 3,  # type: ignore[arg-type]
        [Verdict.defer(float("nan"))] * 3, [Verdict.defer(float("inf"))] * 3,
        [Verdict.reject(None)] * 3, Nasty(),  # type: ignore[arg-type]
    ],
    "shape": [
        None, {}, (1, 2), Shape(-1), Shape(1.5), Shape(True), Shape(float("nan")),  # type: ignore[arg-type]
        Shape(tokens="many"), Nasty(),  # type: ignore[arg-type]
    ],
    "quota": [
        None, 3, [1], {1: -1}, {1: 0.5}, {1: None}, {1: True}, {1: float("inf")}, {1: Nasty()},
        Nasty(),
    ],
    "victims": [None, 3, "01", {0}, {0: 1}, Nasty()],
}  # fmt: skip
CASES = [(hook, index) for hook, wrong in NONSENSE.items() for index in range(len(wrong))]


@pytest.mark.parametrize(("hook", "index"), CASES)
def test_nonsense_counts_for_nothing_and_is_a_fault(hook: str, index: int) -> None:
    advice, (guard,) = advice_of(hook, [("a", NONSENSE[hook][index])])
    assert ASK[hook](advice) == NOTHING[hook]
    assert guard.faults == 1
    assert guard.last_fault is not None and len(guard.last_fault) < 500


@pytest.mark.parametrize("hook", sorted(ASK))
def test_one_that_raises_loses_nobody_elses_answer(hook: str) -> None:
    good = {"admit": [Verdict.reject("no")] * 3, "shape": Shape(3), "quota": {0: 1}}

    def broken(*_: Any) -> Any:
        raise ValueError("no")

    guard = Guard("bad", 2, 1.0)
    alone, _ = advice_of(hook, [("good", good.get(hook, [0]))])
    others = [Advisor("good", lambda *_: good.get(hook, [0]), Guard("good", 3, 1.0))]
    advisors = others if hook == "victims" else [Advisor("bad", broken, guard), *others]
    advice = Advice({hook: advisors})
    for _ in range(4):
        assert ASK[hook](advice) == ASK[hook](alone)
    assert guard.faults == (0 if hook == "victims" else 2), "it is not asked when it is off"


def test_one_advisor_cannot_change_what_the_next_one_sees() -> None:
    seen = []

    def clears(requests: Any, load: LoadView) -> Any:
        requests.clear()

    def counts_them(requests: Any, load: LoadView) -> Any:
        seen.append(len(requests))
        return [Verdict.accept()] * len(requests)

    advisors = [Advisor(f.__name__, f, Guard("", 3, 1.0)) for f in (clears, counts_them)]
    assert Advice({"admit": advisors}).admit(list(VIEWS), LOAD) == [
        (Verdict.accept(), "counts_them")
    ] * 3
    assert seen == [3]


def test_observers_all_see_and_none_answers() -> None:
    seen: list[Any] = []
    guard = Guard("b", 1, 1.0)

    def broken(events: Any) -> None:
        raise ValueError

    advisors = [Advisor("b", broken, guard), Advisor("a", seen.append, Guard("a", 3, 1.0))]
    advice = Advice({"observe": advisors})
    assert advice.wants_events
    advice.observe(())
    assert seen == [()] and guard.off
