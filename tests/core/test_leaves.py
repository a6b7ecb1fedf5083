"""What is at the bottom of a stack, and what is written down when a plugin is switched off."""

from typing import Any

import pytest

from jackfield.core.api import (
    Discipline,
    PolicyConfig,
    Rank,
    RequestContext,
    RequestError,
    RequestView,
    SamplingParams,
)
from jackfield.core.engine.decisions import Action
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import (
    GREEDY,
    Sizes,
    context_for,
    expected_answer,
    make_engine,
    request,
    run,
)

SIZES = Sizes(num_blocks=12, block_size=4, max_seqs=3, max_model_len=48)


def made(cls: type[Discipline[Any]]) -> Discipline[Any]:
    return cls(PolicyConfig(), context_for(SIZES, ManualClock()))


class KeepsShortAnswers(Discipline[None]):
    """Preempts whoever has the most tokens."""

    def keep(self, request: RequestView, now: float) -> Rank:
        return -float(request.num_computed_tokens)


class TenantsByLength(Discipline[None]):
    """Classes by tenant, and the shortest prompt first in each."""

    def classify(self, request: RequestView) -> str:
        return request.context.tenant

    def rank(self, cls: Any, now: float) -> Rank:
        return float(cls.key == "slow")

    def key(self, request: RequestView, now: float) -> Rank:
        return float(request.num_prompt_tokens)


class Broken(Discipline[None]):
    def key(self, request: RequestView, now: float) -> Rank:
        raise ZeroDivisionError("no key today")


def test_a_leaf_may_only_say_whom_to_keep() -> None:
    engine = make_engine(SIZES, disciplines=[made(KeepsShortAnswers)])
    for name, length in (("old", 2), ("long", 24), ("short", 2)):
        engine.add(request(name, [7] * length, GREEDY.with_(max_tokens=20)))
    answers = run(engine)
    preempted = [
        name for name in ("old", "long", "short")
        if any(d.action is Action.PREEMPT for d in engine.explain(name))
    ]  # fmt: skip
    assert preempted == ["long"]
    assert answers["long", 0].tokens == expected_answer([7] * 24, 20)


def test_a_recomputed_position_is_counted() -> None:
    engine = make_engine(SIZES, disciplines=[made(KeepsShortAnswers)])
    for name, length in (("old", 2), ("long", 24), ("short", 2)):
        engine.add(request(name, [7] * length, GREEDY.with_(max_tokens=20)))
    run(engine)
    assert engine.metrics.recomputed_tokens >= 24


def test_the_last_discipline_may_make_classes_and_order_in_them() -> None:
    one_seat = Sizes(num_blocks=32, max_seqs=1, share=0.0)
    engine = make_engine(one_seat, disciplines=[made(TenantsByLength)])
    crowd = [("a", "slow", 2), ("b", "fast", 9), ("c", "fast", 3), ("d", "slow", 1)]
    for name, tenant, length in crowd:
        context = RequestContext(tenant=tenant)
        engine.add(request(name, [3] * length, GREEDY.with_(max_tokens=1), context=context))
    order = []
    while engine.has_work:
        order += [delta.id for delta in engine.step()]
    assert order == ["c", "b", "d", "a"]


def test_a_switched_off_plugin_is_written_down_once() -> None:
    engine = make_engine(SIZES, disciplines=[made(Broken)])
    for number in range(8):
        engine.add(request(str(number), [number + 1]))
    run(engine)
    faults = [decision for decision in engine.log.of("") if decision.action is Action.FAULT]
    assert len(faults) == 1
    assert faults[0].plugin == "broken"
    assert "no key today" in faults[0].reason


@pytest.mark.parametrize("stop", [5.5, {"a": 1}, 7, [""], [3], "", b"x"])
def test_stop_is_a_text_or_a_list_of_texts(stop: Any) -> None:
    with pytest.raises(RequestError) as refused:
        SamplingParams(stop=stop)
    assert refused.value.param == "stop"
