"""Recipes that lock up or starve a careless scheduler, as fixed scenarios."""

from random import Random
from typing import Any

import pytest

from jackfield.core.api import NeverFits, RequestContext, SamplingParams
from jackfield.core.engine.decisions import Action
from jackfield.core.engine.loop import Engine
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
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.tree_laws import Halves

OVERLAPS = [0, 1, 2]


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_prompt_larger_than_the_pool_does_not_hang_the_queue(overlap: int) -> None:
    sizes = Sizes(8, 16, max_tokens=64, max_model_len=1024, overlap=overlap)
    engine = make_engine(sizes)
    with pytest.raises(NeverFits, match=r"needs 13 KV blocks of 16; the whole pool has 8"):
        engine.add(request("large", [1] * 200))
    for number in range(10):
        engine.add(request(f"r{number}", [number] * 20))
    answers = run(engine)
    assert len(answers) == 10
    for number in range(10):
        assert answers[(f"r{number}", 0)].tokens == expected_answer([number] * 20, 8)


def test_an_answer_larger_than_the_pool_is_refused_too() -> None:
    engine = make_engine(Sizes(2, 16, max_model_len=1024))
    with pytest.raises(NeverFits, match=r"grow to 41 tokens, which needs 3 KV blocks.* has 2"):
        engine.add(request("r", [1] * 31, GREEDY.with_(max_tokens=10)))
    engine.add(request("r", [1] * 31, GREEDY.with_(max_tokens=1)))
    engine.add(request("s", [1] * 2, GREEDY.with_(max_tokens=None)))
    answers = run(engine)
    assert answers[("r", 0)].tokens == expected_answer([1] * 31, 1)
    assert answers[("s", 0)].tokens == expected_answer([1] * 2, 30), "all that fits"


def test_members_that_wait_for_the_prompt_take_no_seat() -> None:
    """A long prompt of a group is computed in pieces; its nine others must not fill the seats."""
    engine = make_engine(Sizes(num_blocks=64, max_tokens=8, max_seqs=2, max_model_len=128))
    engine.add(request("group", [1] * 60, GREEDY.with_(n=10)))
    engine.step()
    engine.add(request("other", [2]))
    answers: dict[Any, Any] = {}
    for _ in range(20):
        absorb(answers, engine.step())
    assert answers[("other", 0)].finish
    absorb_all(engine, answers)
    assert len(answers) == 11


def absorb_all(engine: Engine, answers: dict[Any, Any]) -> None:
    while engine.has_work:
        absorb(answers, engine.step())


def first_tokens(engine: Engine, limit: int = 200) -> dict[str, int]:
    """Name -> number of the step that gave the first token."""
    found: dict[str, int] = {}
    for number in range(1, limit):
        for delta in engine.step():
            if delta.tokens:
                found.setdefault(delta.id, number)
        if not engine.has_work:
            return found
    raise AssertionError("the engine still has work")


def long_and_short(advisors: dict[str, Any] | None = None) -> dict[str, int]:
    sizes = Sizes(256, 16, max_tokens=64, max_seqs=8, max_model_len=2048)
    engine = make_engine(sizes, advisors=advisors)
    engine.add(request("long", [1] * 2000))
    for number in range(5):
        engine.add(request(f"s{number}", [2] * 8))
    return first_tokens(engine)


def test_short_prompts_behind_a_long_one_come_with_its_end() -> None:
    """2000 positions at 64 a step are 32 steps; the last one has room for five short prompts."""
    assert long_and_short() == {"long": 32, **{f"s{number}": 32 for number in range(5)}}


def test_a_limit_on_long_prompts_lets_short_ones_in_at_once() -> None:
    class Throttle:
        """No prompt takes more than 24 positions of a step."""

        def quota(self, plan: Any) -> dict[int, int]:
            return {need.request.handle: 24 for need in plan.prefills}

    found = long_and_short({"throttle": Throttle()})
    assert {found[f"s{number}"] for number in range(3)} == {2}
    assert max(found[f"s{number}"] for number in range(5)) <= 3
    assert found["long"] == -(-2000 // 24)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_preempted_request_comes_back_when_all_of_it_fits(overlap: int) -> None:
    """Else it would be admitted, find no block, and be preempted again and again."""
    engine = make_engine(Sizes(8, 2, max_tokens=32, max_seqs=4, max_model_len=16, overlap=overlap))
    for number in range(4):
        engine.add(request(f"r{number}", [number, 1, 2]))
    planner = engine.lifecycle.planner
    again = 0
    while engine.has_work:
        known = {r: r.total for r in engine.lifecycle.valve.requests() if r.num_preemptions}
        engine.step()
        for one in known:
            if one in planner.running.values():
                again += 1
                assert len(one.blocks) >= planner.pool.blocks_for(known[one])
                assert one.computed >= known[one], "the whole recompute in one step"
    assert again > 0
    assert engine.metrics.preemptions <= 8


def test_the_oldest_takes_memory_even_from_who_has_a_better_rank() -> None:
    clock = ManualClock()
    sizes = Sizes(8, 2, max_tokens=16, max_seqs=4, max_model_len=16)
    halves = Halves(Halves.Config(), context_for(sizes, clock))
    engine = make_engine(sizes, disciplines=[halves], clock=clock)
    engine.add(request("old", [1, 1], GREEDY.with_(max_tokens=14), context=tier("second")))
    engine.step()
    for number in range(6):
        params = GREEDY.with_(max_tokens=14)
        engine.add(request(f"vip{number}", [2, 2], params, context=tier("first")))
    answers = run(engine)
    assert [d.action for d in engine.explain("old")].count(Action.PREEMPT) == 0
    assert len(answers) == 7
    assert engine.metrics.preemptions > 0
    assert all(answer.finish == "length" for answer in answers.values())


def tier(name: str) -> RequestContext:
    return RequestContext(tier=name)


def test_the_valve_lets_the_lowest_rank_in() -> None:
    """First-tier requests come for ever; one in ten admissions is the oldest's all the same."""
    clock = ManualClock()
    sizes = Sizes(max_seqs=1, share=0.1)
    halves = Halves(Halves.Config(), context_for(sizes, clock))
    engine = make_engine(sizes, disciplines=[halves], clock=clock)
    short = GREEDY.with_(max_tokens=1)
    engine.add(request("low", [1], short, context=tier("second")))
    answers: dict[Any, Any] = {}
    for number in range(20):
        for name in (f"a{number}", f"b{number}"):
            engine.add(request(name, [2], short, context=tier("first")))
        absorb(answers, engine.step())
    assert answers[("low", 0)].finish
    assert engine.explain("low")[-2].code == "valve"
    assert engine.metrics.valve_admissions > 0


def test_without_the_valve_ranks_are_strict() -> None:
    clock = ManualClock()
    sizes = Sizes(max_seqs=1, share=0.0)
    halves = Halves(Halves.Config(), context_for(sizes, clock))
    engine = make_engine(sizes, disciplines=[halves], clock=clock)
    short = GREEDY.with_(max_tokens=1)
    engine.add(request("low", [1], short, context=tier("second")))
    answers: dict[Any, Any] = {}
    for number in range(200):
        engine.add(request(f"a{number}", [2], short, context=tier("first")))
        absorb(answers, engine.step())
    assert ("low", 0) not in answers
    assert run(engine)[("low", 0)].finish


def test_nothing_grows_in_5000_steps() -> None:
    random = Random(0)
    engine = make_engine(
        Sizes(24, 2, max_tokens=16, max_seqs=4, max_model_len=32, overlap=1),
        executor=FakeExecutor(2, 13),
        eos_ids=frozenset({12}),
    )
    answers: dict[Any, Any] = {}
    for number in range(5000):
        if len(engine.lifecycle.tree) < 12 and random.random() < 0.6:
            params = SamplingParams(max_tokens=random.randint(0, 9), n=random.choice((1, 1, 2)))
            prompt = [random.randrange(12) for _ in range(random.randint(1, 12))]
            engine.add(request(f"r{number}", prompt, params))
        if random.random() < 0.1:
            engine.abort(f"r{number - random.randrange(9)}")
        absorb(answers, engine.step())
        answers.clear()
        lifecycle = engine.lifecycle
        assert len(engine._requests) <= 40
        assert len(lifecycle.gates._parked) <= 40 and lifecycle.gates._alarms.num_entries < 300
        assert lifecycle.valve._waiting.num_entries < 300
        assert sum(1 for _ in lifecycle.tree.nodes()) == 1
        assert not engine._arrivals and not lifecycle.ended and not lifecycle.outbox
        assert len(engine._in_flight) <= 1 and len(lifecycle.planner._joins) <= 4
        assert len(lifecycle.planner._leaves) <= 8 and not lifecycle._events
    run(engine)
    assert engine.metrics.steps > 3000 and engine.metrics.preemptions > 20
    assert len(engine.log) <= 65_536
