"""Policies that misbehave in every way: answers stay right, the fault is counted under their name,
and after some faults they are replaced.
"""

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    RequestContext,
    RequestError,
    Shape,
    Verdict,
    Work,
)
from jackfield.core.engine import guard as guard_module
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import (
    GREEDY,
    Sizes,
    absorb,
    context_for,
    expected_answer,
    make_engine,
    request,
    run,
)
from jackfield.core.testing.hostile import Nasty
from jackfield.core.testing.lives import TIGHT, life, start
from jackfield.core.testing.watch import Watch

OVERLAPS = [0, 2]
METHODS = (
    "classify", "key", "rank", "charge", "activate", "admitted", "left", "keep", "eligible_at",
    "pick",
)  # fmt: skip
LEAF_METHODS = ("key", "keep", "pick")
RANKS = ("key", "rank", "keep")
Behaviour = Callable[..., Any]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raises(*arguments: Any) -> Any:
    raise ValueError("no")


def raises_unprintable(*arguments: Any) -> Any:
    raise Unprintable


def writes(*arguments: Any) -> Any:
    """Writes to the first view or class that it gets."""
    first = arguments[0]
    first.waiting = first.arrival = 0
    return 1.0


def writes_private(*arguments: Any) -> Any:
    arguments[0].handle = 3


def deep(*arguments: Any) -> Any:
    return deep(*arguments)


def returns(value: Any) -> Behaviour:
    return lambda *arguments: value


def widths() -> Behaviour:
    """Ranks of one number, then of two."""
    count = iter(range(10**9))
    return lambda *arguments: (1.0,) * (1 + next(count) % 2)


BAD: dict[str, Callable[[], Behaviour]] = {
    "raises": lambda: raises,
    "raises what cannot be printed": lambda: raises_unprintable,
    "never returns from recursion": lambda: deep,
    "writes": lambda: writes,
}
BAD_RANKS: dict[str, Callable[[], Behaviour]] = {
    "None": lambda: returns(None),
    "a text": lambda: returns("first"),
    "NaN": lambda: returns(math.nan),
    "NaN in a tuple": lambda: returns((1.0, math.nan)),
    "nothing": lambda: returns(()),
    "a list": lambda: returns([1.0]),
    "a flag": lambda: returns(True),
    "complex": lambda: returns(1j),
    "nasty": lambda: returns(Nasty()),
    "mixed widths": widths,
}
BAD_CLASSES: dict[str, Callable[[], Behaviour]] = {
    "a list": lambda: returns([1]),
    "nasty": lambda: returns(Nasty()),
}
BAD_TIMES = {name: make for name, make in BAD_RANKS.items() if name != "mixed widths"}
BAD_INDEXES: dict[str, Callable[[], Behaviour]] = {
    **BAD_TIMES,
    "one before the first": lambda: returns(-1),
    "one behind the last": lambda: returns(3),
    "huge": lambda: returns(10**400),
    "a float": lambda: returns(0.0),
}
CASES = [
    *((method, name, make) for method in METHODS for name, make in BAD.items()),
    *((method, name, make) for method in RANKS for name, make in BAD_RANKS.items()),
    *(("classify", name, make) for name, make in BAD_CLASSES.items()),
    *(("eligible_at", name, make) for name, make in BAD_TIMES.items()),
    *(("pick", name, make) for name, make in BAD_INDEXES.items()),
]


def hostile(method: str, behaviour: Behaviour) -> type[Discipline[Any]]:
    """A discipline like any other, but for one method."""

    class Hostile(Discipline[Any]):
        lookahead = 3

        def classify(self, request: Any) -> Hashable:
            return request.context.tenant

        def rank(self, cls: ClassState[Any], now: float) -> Any:
            return cls.state or 0

        def charge(self, cls: ClassState[Any], work: Work) -> None:
            cls.state = (cls.state or 0) + work.decode

    if method in LEAF_METHODS:
        del Hostile.classify
    setattr(Hostile, method, lambda self, *arguments: behaviour(*arguments))
    return Hostile


def stack_of(method: str, behaviour: Behaviour) -> Callable[[PolicyContext], list[Any]]:
    """As the leaf for what only a leaf is asked, else above it."""
    cls = hostile(method, behaviour)
    plain = [] if method in LEAF_METHODS else [Discipline]
    return lambda context: [
        one(PolicyConfig(), context) for one in (cls, *plain)  # type: ignore[operator]
    ]


def faults_of(watch: Watch, name: str) -> int:
    return sum(guard.faults for guard in watch.engine._policies.guards if guard.plugin == name)


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize(("method", "name", "make"), CASES)
def test_a_discipline(
    method: str, name: str, make: Callable[[], Behaviour], overlap: int
) -> None:
    watch = life(stack_of(method, make()), replace(TIGHT, overlap=overlap), steps=60)
    assert faults_of(watch, "hostile") >= TIGHT.fault_limit
    assert list(watch.engine.faults()) == ["hostile"]
    level = watch.engine.lifecycle.tree.levels[0]
    assert not (level.ranks or level.keys or level.charges or level.keeps or level.classifies)
    assert not (level.shapes or level.lookahead)


@pytest.mark.parametrize("method", RANKS)
def test_infinite_ranks_are_ranks(method: str) -> None:
    for value in (math.inf, -math.inf, 10**400):
        watch = life(stack_of(method, returns(value)), steps=40)
        assert faults_of(watch, "hostile") == 0


@pytest.mark.parametrize("method", RANKS)
def test_one_fault_does_not_count_as_more(method: str) -> None:
    """The first answer decides how wide ranks are; a fault has no width."""
    count = iter(range(10**9))

    def first_fails(*arguments: Any) -> Any:
        if next(count) == 0:
            raise ValueError
        return (1.0, 2.0)

    watch = life(stack_of(method, first_fails), steps=60)
    assert next(count) > 5
    assert faults_of(watch, "hostile") == 1 and not watch.engine.faults()


HOOKS: dict[str, list[Any]] = {
    "admit": [None, 3, [], [Verdict.accept()] * 99, [Verdict("x")], [Nasty()], Nasty()],  # type: ignore[arg-type]
    "shape": [None, {}, Shape(-1), Shape(math.nan), Shape(seqs=Nasty()), Nasty()],  # type: ignore[arg-type]
    "quota": [None, [1], {0: -1}, {0: math.inf}, {0: Nasty()}, Nasty()],
    "victims": [None, 3, "0", {0}, Nasty()],
}
HOOK_CASES = [(hook, index) for hook, answers in HOOKS.items() for index in range(len(answers))]


class Hooked:
    """An advisor with one hook."""

    def __init__(self, hook: str, behaviour: Behaviour) -> None:
        setattr(self, hook, behaviour)


def advised(hook: str, behaviour: Behaviour, sizes: Sizes, steps: int = 60) -> Watch:
    return life(
        lambda _: [], sizes, steps=steps, make_advisors=lambda _: {"bad": Hooked(hook, behaviour)}
    )


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize(("hook", "index"), HOOK_CASES)
def test_a_hook_that_returns_nonsense(hook: str, index: int, overlap: int) -> None:
    watch = advised(hook, returns(HOOKS[hook][index]), replace(TIGHT, overlap=overlap))
    assert list(watch.engine.faults()) == ["bad"] and faults_of(watch, "bad") >= 3
    assert not any(progress.finish == "error" for progress in watch.answers.values())


@pytest.mark.parametrize("hook", [*HOOKS, "observe"])
@pytest.mark.parametrize("behaviour", [raises, raises_unprintable, deep])
def test_a_hook_that_raises(hook: str, behaviour: Behaviour) -> None:
    watch = advised(hook, behaviour, TIGHT)
    assert list(watch.engine.faults()) == ["bad"]
    assert faults_of(watch, "bad") == TIGHT.fault_limit, "it is not asked again"


LEGAL: dict[str, Callable[[Any], Any]] = {
    "no tokens": lambda _: Shape(tokens=0),
    "no prompts": lambda _: Shape(prefill_tokens=0),
    "no sequences": lambda _: Shape(seqs=0),
    "one sequence": lambda _: Shape(seqs=1),
    "no admissions": lambda _: Shape(new_seqs=0),
    "no partial prompts": lambda _: Shape(partial_prefills=0),
    "all blocks reserved": lambda _: Shape(reserve_blocks=10**9),
    "everything at once": lambda _: Shape(0, 0, 0, 0, 0, 10**9),
    "more than there is": lambda _: Shape(*[10**12] * 5),
}


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_shape_never_stops_the_engine(name: str, overlap: int) -> None:
    watch = advised("shape", LEGAL[name], replace(TIGHT, overlap=overlap))
    assert faults_of(watch, "bad") == 0
    stalls = watch.engine.metrics.policy_stalls["bad"]
    idle = ("no tokens", "no prompts", "no sequences", "no admissions", "everything at once")
    assert (stalls > 0) >= (name in idle)
    assert stalls == 0 or name != "more than there is"


QUOTAS: dict[str, Callable[[Any], Any]] = {
    "nothing for anybody": lambda plan: {need.request.handle: 0 for need in plan.prefills},
    "one for everybody": lambda plan: {need.request.handle: 1 for need in plan.prefills},
    "nothing for the first": lambda plan: {plan.prefills[0].request.handle: 0},
    "foreign and stale handles": lambda plan: {10**9: 0, -5: 3, "x": 1, None: 2},
    "huge": lambda plan: {need.request.handle: 10**400 for need in plan.prefills},
}


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("name", QUOTAS)
def test_a_legal_quota_never_stops_the_engine(name: str, overlap: int) -> None:
    watch = advised("quota", QUOTAS[name], replace(TIGHT, overlap=overlap))
    assert faults_of(watch, "bad") == 0


VICTIMS: dict[str, Callable[[Any], Any]] = {
    "nobody": lambda shortage: [],
    "foreign and stale": lambda shortage: [10**9, -1, 0],
    "again and again": lambda shortage: [shortage.candidates[0].handle] * 50,
    "everybody": lambda shortage: [view.handle for view in shortage.candidates],
}


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("name", VICTIMS)
def test_victims_of_all_kinds(name: str, overlap: int) -> None:
    watch = advised("victims", VICTIMS[name], replace(TIGHT, overlap=overlap), steps=150)
    assert watch.engine.metrics.preemptions > 0
    assert faults_of(watch, "bad") == 0


def test_who_is_given_nothing_while_others_come_still_finishes() -> None:
    def starves(plan: Any) -> dict[int, int]:
        return {need.request.handle: 0 for need in plan.prefills if need.request.id == "victim"}

    engine = make_engine(Sizes(max_seqs=2), advisors={"bad": Hooked("quota", starves)})
    engine.add(request("victim", [1, 2, 3]))
    answers: dict[Any, Any] = {}
    for number in range(100):
        engine.add(request(f"r{number}", [1, 2, 3], GREEDY.with_(max_tokens=1)))
        absorb(answers, engine.step())
    assert answers[("victim", 0)].tokens == expected_answer([1, 2, 3], 8)


def test_deferring_for_ever_ends_with_a_reason() -> None:
    clock = ManualClock()
    forever = Hooked("admit", lambda requests, load: [Verdict.defer(1e17)] * len(requests))
    watch = start(lambda _: [], TIGHT, clock, lambda _: {"bad": forever})
    watch.add(request("r", [1]), frozenset({12}))
    watch.drain()
    assert clock.now() > 600 and faults_of(watch, "bad") == 0


def test_a_deferral_into_the_past_is_asked_once_a_step() -> None:
    asked = []

    def again(requests: Any, load: Any) -> list[Verdict]:
        asked.append(load.now)
        return [Verdict.defer(-1e17)] * len(requests)

    clock = ManualClock()
    engine = make_engine(advisors={"bad": Hooked("admit", again)}, clock=clock)
    engine.add(request("r", [1]))
    for _ in range(3):
        engine.step()
        clock.advance(1.0)
    assert asked == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("name", ["handle", "id", "arrival", "context", "computed", "new"])
def test_views_cannot_be_written(name: str) -> None:
    engine = make_engine()
    engine.add(request("r", [1], context=RequestContext(tenant="a")))
    view = engine._requests["r"][0].view
    with pytest.raises(AttributeError, match="read-only"):
        setattr(view, name, 1)
    with pytest.raises(AttributeError):
        view.context.tenant = "b"
    state: ClassState[int] = ClassState("a")
    for field in ("key", "waiting", "running", "new"):
        with pytest.raises(AttributeError):
            setattr(state, field, 1)


@pytest.mark.parametrize("call", ["step", "abort", "add"])
@pytest.mark.parametrize("hook", ["admit", "shape", "quota", "observe"])
def test_a_hook_cannot_call_the_engine(hook: str, call: str) -> None:
    arguments = {"step": (), "abort": ("r",), "add": (request("new", [1]),)}

    def reenters(*_: Any) -> Any:
        getattr(engine, call)(*arguments[call])

    engine = make_engine(advisors={"bad": Hooked(hook, reenters)})
    engine.add(request("r", [1]))
    answers = run(engine)
    assert answers.keys() == {("r", 0)} and answers[("r", 0)].tokens == expected_answer([1], 8)
    guard = engine._policies.guards[-1]
    assert guard.faults > 0 and f"a hook called {call}()" in (guard.last_fault or "")


@pytest.mark.parametrize("method", ["classify", "key", "rank", "charge"])
def test_a_discipline_cannot_call_the_engine(method: str) -> None:
    def reenters(*_: Any) -> Any:
        engine.step()

    make = stack_of(method, reenters)
    engine = make_engine(disciplines=make(context_for(Sizes(), ManualClock())))
    for name in "abc":
        engine.add(request(name, [1]))
    answers = run(engine)
    assert all(answer.tokens == expected_answer([1], 8) for answer in answers.values())
    assert "hostile" in engine.faults()


def test_after_a_hook_that_raised_the_engine_takes_calls_again() -> None:
    engine = make_engine(advisors={"bad": Hooked("shape", raises)})
    engine.add(request("r", [1]))
    engine.step()
    engine.add(request("s", [1]))
    engine.abort("r")
    assert run(engine)[("s", 0)].tokens == expected_answer([1], 8)


@pytest.fixture
def burn(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Burns time of the guards' clock, not of anybody else's."""
    time = [0.0]

    def ticks() -> Iterator[float]:
        while True:
            yield time[0]

    clock = ticks()
    monkeypatch.setattr(guard_module, "perf_counter", lambda: next(clock))

    def spend(seconds: float) -> None:
        time[0] += seconds

    return spend


@pytest.mark.parametrize("method", METHODS)
def test_a_discipline_over_its_budget(method: str, burn: Callable[[float], None]) -> None:
    def slow(*_: Any) -> float:
        burn(0.5)
        return 1.0

    watch = life(stack_of(method, slow), replace(TIGHT, hook_budget=0.1), steps=60)
    assert list(watch.engine.faults()) == ["hostile"]
    assert "took 500.0 ms; its budget is 100.0 ms" in watch.engine.faults()["hostile"]


@pytest.mark.parametrize("hook", [*HOOKS, "observe"])
def test_a_hook_over_its_budget(hook: str, burn: Callable[[float], None]) -> None:
    good: dict[str, Behaviour] = {
        "admit": lambda requests: [Verdict.accept()] * len(requests),
        "shape": returns(Shape()),
        "quota": returns({}),
    }

    def slow(first: Any, *_: Any) -> Any:
        burn(0.5)
        return good.get(hook, returns([]))(first)

    watch = advised(hook, slow, replace(TIGHT, hook_budget=0.1), steps=150)
    assert list(watch.engine.faults()) == ["bad"]
    guard = watch.engine._policies.guards[-1]
    assert guard.slow_calls == guard.faults == TIGHT.fault_limit


def test_who_waits_and_who_runs_stay_when_a_level_falls_back() -> None:
    """A discipline fails while requests wait, run and are parked: nobody is lost, order is fcfs."""
    broken = [False]

    def rank(*_: Any) -> float:
        if broken[0]:
            raise ValueError
        return 0.0

    clock = ManualClock()
    sizes = replace(TIGHT, max_seqs=2, num_blocks=24)
    watch = start(stack_of("rank", rank), sizes, clock)
    for number in range(12):
        context = RequestContext(tenant=str(number % 3))
        watch.add(request(f"r{number}", [1, 2], context=context), frozenset({12}))
        clock.advance(1.0)
    watch.step()
    broken[0] = True
    watch.drain()
    assert "hostile" in watch.engine.faults()
    admitted = [
        d.request for d in watch.engine.log._ring if d.action == "admit" and d.code == "order"
    ]
    later = [int(name[1:]) for name in admitted[8:]]
    assert later == sorted(later)


def test_refusing_at_the_door_asks_no_policy() -> None:
    engine = make_engine(advisors={"bad": Hooked("admit", raises)})
    with pytest.raises(RequestError):
        engine.add(request("r", []))
    engine.step()
    assert engine._policies.guards[-1].faults == 0
