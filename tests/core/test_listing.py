"""Who is in the engine, where, and why: the codes of decisions, and the list that tells them."""

from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from jackfield.core.api import (
    ClassState,
    Discipline,
    LoadView,
    PolicyConfig,
    RequestContext,
    RequestView,
    Shape,
    StepView,
    Verdict,
)
from jackfield.core.engine.decisions import Action
from jackfield.core.engine.listing import Query, RequestRow, list_requests
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.places import LOOKED_AT
from jackfield.core.engine.snapshot import take_snapshot
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request, run
from jackfield.core.testing.failing_executor import FailingExecutor

ONE_SEAT = Sizes(max_seqs=1, share=0.0)


class ByPriority(Discipline[None]):
    """One class per priority, the lower first."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.priority

    def rank(self, cls: ClassState[None], now: float) -> float:
        assert isinstance(cls.key, int)
        return float(cls.key)


class Late(Discipline[None]):
    """Tenant "late" waits until 5."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant

    def eligible_at(self, cls: ClassState[None], now: float) -> float:
        return 5.0 if cls.key == "late" else 0.0


class Says:
    """An advisor that gives one verdict to all."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def admit(self, requests: Sequence[RequestView], load: LoadView) -> list[Verdict]:
        return [self.verdict for _ in requests]


class Reserves:
    """An advisor that keeps blocks free, or seats."""

    def __init__(self, **shape: int) -> None:
        self.wanted = Shape(**shape)

    def shape(self, step: StepView) -> Shape:
        return self.wanted


def add(engine: Engine, name: str, prompt: int = 3, n: int = 1, **context: Any) -> None:
    params = GREEDY.with_(max_tokens=8, n=n)
    asks = RequestContext(**context)
    engine.add(request(name, list(range(1, prompt + 1)), params, context=asks))


def rows(engine: Engine, **query: Any) -> list[RequestRow]:
    return list_requests(engine, Query(**query)).rows


def codes(engine: Engine, name: str) -> list[tuple[str, str, str]]:
    return [(one.action.value, one.code, one.plugin) for one in engine.explain(name)]


def test_who_runs_comes_first_then_the_queue_in_its_order() -> None:
    clock = ManualClock()
    policy = ByPriority(PolicyConfig(), context_for(ONE_SEAT, clock))
    engine = make_engine(ONE_SEAT, disciplines=[policy], clock=clock)
    add(engine, "first", tenant="t")
    engine.step()
    clock.advance(2.0)
    for name, priority in (("low", 9), ("urgent", -1), ("middle", 3)):
        add(engine, name, priority=priority)
    assert [row.code for row in rows(engine, state="waiting")] == ["arrived"] * 3
    engine.step()
    clock.advance(1.0)
    found = rows(engine)
    assert [(row.id, row.state, row.position, row.code) for row in found] == [
        ("first", "running", None, "order"),
        ("urgent", "waiting", 1, "no_seat"),
        ("middle", "waiting", 2, "behind"),
        ("low", "waiting", 3, "behind"),
    ]
    first, urgent, middle = found[:3]
    assert (first.tenant, first.age, first.since, first.blocks) == ("t", 3.0, 3.0, 1)
    assert (first.prompt_tokens, first.output_tokens, first.max_tokens) == (3, 2, 8)
    assert (urgent.age, urgent.since, urgent.blocks) == (1.0, 1.0, 1)
    assert urgent.reason == "no free seat: all 1 are taken"
    assert middle.reason == "1 request goes before it"


def test_the_list_is_as_long_and_of_whom_it_was_asked() -> None:
    engine = make_engine(ONE_SEAT)
    for number in range(6):
        add(engine, f"r{number}", tenant="ab"[number % 2])
    engine.step()
    page = list_requests(engine, Query(tenant="b", limit=2))
    assert page.counts == {"running": 0, "waiting": 3, "parked": 0}
    assert [(row.id, row.position) for row in page.rows] == [("r1", 1), ("r3", 3)]
    assert (page.free_seats, len(rows(engine, limit=1))) == (0, 1)
    assert [row.id for row in rows(engine, state="running")] == ["r0"]
    assert [row.id for row in rows(engine, id="r4")] == ["r4"]
    assert rows(engine, id="r4", tenant="b") == []
    run(engine)
    assert list_requests(engine, Query()).counts == {"running": 0, "waiting": 0, "parked": 0}


def test_places_are_counted_only_so_far() -> None:
    engine = make_engine(ONE_SEAT)
    for number in range(LOOKED_AT + 3):
        add(engine, f"r{number}")
    engine.step()
    found = [row.position for row in rows(engine, state="waiting", limit=1000)]
    assert found == list(range(1, 1001))
    (last,) = rows(engine, id=f"r{LOOKED_AT}")
    (further,) = rows(engine, id=f"r{LOOKED_AT + 1}")
    assert (last.position, further.position) == (LOOKED_AT, None)
    assert (further.code, further.reason) == ("behind", "many requests go before it")


def test_blocks_that_are_missing_are_counted() -> None:
    engine = make_engine(Sizes(num_blocks=8, max_seqs=4))
    add(engine, "large", prompt=14)
    engine.step()
    add(engine, "next", prompt=20)
    engine.step()
    (row,) = rows(engine, state="waiting")
    free = engine.lifecycle.planner.pool.num_free
    assert (row.code, row.plugin, row.blocks) == ("no_blocks", "core", 6)
    assert row.reason == f"no free blocks: it takes 6, {free} are free"
    assert ("wait", "no_blocks", "core") in codes(engine, "next")


@pytest.mark.parametrize(
    ("shape", "code"), [({"reserve_blocks": 31}, "blocks_reserved"), ({"seqs": 1}, "step_limited")]
)
def test_limits_of_plugins(shape: dict[str, int], code: str) -> None:
    engine = make_engine(advisors={"careful": Reserves(**shape)})
    add(engine, "a")
    engine.step()
    add(engine, "b")
    engine.step()
    assert codes(engine, "b")[-1] == ("wait", code, "careful")


def test_a_step_that_others_fill() -> None:
    engine = make_engine(Sizes(max_tokens=8))
    add(engine, "long", prompt=20)
    add(engine, "next")
    engine.step()
    assert codes(engine, "next")[-1] == ("wait", "step_full", "core")


def test_a_plugin_that_limits_admissions_is_named() -> None:
    engine = make_engine(advisors={"one_a_step": Reserves(new_seqs=1)})
    add(engine, "a")
    add(engine, "b")
    engine.step()
    assert codes(engine, "b")[-1] == ("wait", "admissions_limited", "one_a_step")
    (row,) = rows(engine, state="waiting")
    assert (row.code, row.plugin) == ("admissions_limited", "one_a_step")


def test_who_is_held_back_is_told_until_when_and_by_whom() -> None:
    clock = ManualClock()
    policy = Late(PolicyConfig(), context_for(ONE_SEAT, clock))
    engine = make_engine(ONE_SEAT, disciplines=[policy], clock=clock)
    add(engine, "a", tenant="late")
    add(engine, "b", tenant="late")
    engine.step()
    clock.advance(1.0)
    assert [(row.code, row.plugin, row.position, row.until) for row in rows(engine)] == [
        ("held_back", "late", None, 4.0)
    ] * 2
    assert codes(engine, "a")[-1] == ("wait", "held_back", "late")


def test_who_is_deferred_is_told_until_when_and_by_whom() -> None:
    engine = make_engine(advisors={"later": Says(Verdict.defer(7.0, "busy"))})
    add(engine, "a", tenant="t", deadline=9.0)
    engine.step()
    (row,) = rows(engine)
    assert (row.state, row.code, row.plugin, row.until) == ("parked", "busy", "later", 7.0)
    assert (row.reason, row.deadline) == ("busy: it is asked again in 7 s", 9.0)


def test_a_wait_is_recorded_once_however_its_numbers_change() -> None:
    engine = make_engine(ONE_SEAT)
    for name in "abc":
        add(engine, name)
    for _ in range(4):
        engine.step()
    waits = [one for one in engine.explain("b") if one.action is Action.WAIT]
    assert len(waits) == 1
    assert engine.log.counts[(Action.WAIT, "core")] == 1
    run(engine)
    assert take_snapshot(engine).decisions["wait"]["core"] == 2
    assert take_snapshot(engine).decisions["admit"] == {"discipline": 3}


def test_answers_to_one_prompt_are_told_apart() -> None:
    engine = make_engine(Sizes(max_seqs=2))
    add(engine, "r", prompt=8, n=3)
    engine.step()
    engine.step()
    assert sorted((row.answer, row.state) for row in rows(engine)) == [
        (0, "running"), (1, "running"), (2, "waiting")
    ]  # fmt: skip
    assert ("park", "awaits_prompt", "core") in codes(engine, "r")
    assert ("wake", "prompt_ready", "core") in codes(engine, "r")
    run(engine)
    ends = [one.answer for one in engine.explain("r") if one.action is Action.FINISH]
    assert sorted(ends) == [0, 1, 2]


def test_ends_have_codes() -> None:
    engine = make_engine(advisors={"no": Says(Verdict.reject("quota", 2.0))})
    add(engine, "r")
    engine.step()
    assert codes(engine, "r")[1:] == [("reject", "quota", "no"), ("fail", "rejected", "core")]
    assert engine.explain("r")[1].reason == "refused by no: quota; try again in 2 s"
    engine = make_engine(executor=FailingExecutor(4, forward={3}, denied={2: "no token"}))
    for name in "abc":
        add(engine, name)
    engine.step()
    add(engine, "d")
    engine.abort("a")
    assert codes(engine, "c")[-1] == ("fail", "answer_failed", "core")
    engine.step()
    engine.step()
    engine.step()
    assert codes(engine, "d")[-1] == ("fail", "step_failed", "core")
    add(engine, "b2")
    run(engine)
    assert codes(engine, "a")[-1] == ("finish", "abort", "core")
    assert codes(engine, "b2")[-1] == ("finish", "length", "core")
