"""A queue that is full: exact within a batch, with places that come back."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from jackfield.core.api import FinishReason, RequestContext, Verdict
from jackfield.core.bench.null_executor import NullExecutor
from jackfield.core.engine.loop import Engine
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import (
    GREEDY,
    Sizes,
    absorb,
    context_for,
    make_engine,
    request,
    run,
)
from jackfield.plugins.schedulers.queue_limit import QueueLimit, QueueLimitConfig

SIZES = Sizes(64, 4, max_tokens=32, max_seqs=2, max_model_len=64)


def engine_with(others: Any = None, sizes: Sizes = SIZES, **limits: Any) -> Engine:
    policy = QueueLimit(QueueLimitConfig(**limits), context_for(sizes, ManualClock()))
    advisors = {"queue": policy} | (others or {})
    return make_engine(sizes, advisors=advisors, executor=NullExecutor())


def of(tenant: str) -> RequestContext:
    return RequestContext(tenant=tenant)


def refused(engine: Engine) -> dict[str, str]:
    """Of the next step: name -> code."""
    return {d.id: d.rejection.code for d in engine.step() if d.rejection is not None}


def test_the_limit_is_exact_within_one_batch_and_across_batches() -> None:
    engine = engine_with(requests=5)
    for number in range(9):
        engine.add(request(f"r{number}", [1] * 4))
    assert refused(engine) == {f"r{number}": "queue_full" for number in range(5, 9)}
    waiting = len(engine.lifecycle.tree)
    assert waiting == 3, "two of five have seats"
    for number in range(4):
        engine.add(request(f"s{number}", [1] * 4))
    assert list(refused(engine)) == ["s2", "s3"]


def test_who_is_refused_or_gives_up_frees_the_place() -> None:
    engine = engine_with(requests=3)
    for number in range(5):
        engine.add(request(f"r{number}", [1] * 4, GREEDY.with_(max_tokens=40)))
    assert len(refused(engine)) == 2
    engine.add(request("s", [1]))
    engine.add(request("t", [1]))
    assert not refused(engine)
    engine.add(request("u", [1]))
    assert refused(engine) == {"u": "queue_full"}
    engine.abort("s")
    engine.add(request("v", [1]))
    assert not refused(engine)


def test_tokens_that_wait_and_one_that_is_too_long_for_the_limit() -> None:
    engine = engine_with(requests=None, tokens=20)
    for number, length in enumerate((30, 1, 12)):
        engine.add(request(f"r{number}", [1] * length))
    assert refused(engine) == {"r1": "queue_tokens_full", "r2": "queue_tokens_full"}
    engine = engine_with(requests=None, tokens=20)
    for number, length in enumerate((12, 8, 1)):
        engine.add(request(f"r{number}", [1] * length))
    assert refused(engine) == {"r2": "queue_tokens_full"}


def test_one_tenant_does_not_take_the_places_of_others() -> None:
    engine = engine_with(per_tenant=2)
    for number in range(4):
        engine.add(request(f"a{number}", [1] * 4, context=of("a")))
    engine.add(request("b", [1] * 4, context=of("b")))
    assert refused(engine) == dict.fromkeys(("a2", "a3"), "queue_full_for_tenant")


def test_each_answer_of_a_call_is_one() -> None:
    """All but the first wait for the prompt, outside the queue: they count."""
    engine = engine_with(requests=4, per_tenant=4)
    engine.add(request("group", [1] * 60, GREEDY.with_(n=4, max_tokens=1)))
    engine.add(request("other", [1]))
    assert refused(engine) == {"other": "queue_full"}
    engine.add(request("two", [1], GREEDY.with_(n=2)))
    assert len([d for d in engine.step() if d.rejection]) == 1, "three of the group still wait"


def test_who_was_deferred_keeps_its_place() -> None:
    class Later:
        """Asks again in ten seconds, once."""

        def __init__(self) -> None:
            self.seen: set[int] = set()

        def admit(self, requests: Any, load: Any) -> list[Verdict]:
            new = [one.handle not in self.seen for one in requests]
            self.seen |= {one.handle for one in requests}
            return [Verdict.defer(load.now + 10) if n else Verdict.accept() for n in new]

    clock = ManualClock()
    policy = QueueLimit(QueueLimitConfig(requests=2), context_for(SIZES, clock))
    engine = make_engine(SIZES, advisors={"queue": policy, "later": Later()}, clock=clock)
    for name in "abc":
        engine.add(request(name, [1]))
    assert list(refused(engine)) == ["c"]
    engine.add(request("d", [1]))
    assert list(refused(engine)) == ["d"]
    clock.advance(11)
    answers = run(engine)
    assert all(answers[(name, 0)].finish is FinishReason.LENGTH for name in "ab")


def test_when_to_come_again() -> None:
    engine = engine_with(requests=1, retry_after=2.5)
    engine.add(request("a", [1]))
    engine.add(request("b", [1]))
    [rejection] = [d.rejection for d in engine.step() if d.rejection is not None]
    assert rejection.retry_after == 2.5


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_counts_stay_within_limits_and_nobody_is_refused_below(seed: int, overlap: int) -> None:
    """Against counts made from the engine's own lists, under random loads without preemption."""
    random = Random(seed)
    sizes = Sizes(256, 4, max_tokens=32, max_seqs=3, max_model_len=64, overlap=overlap)
    engine = engine_with(sizes=sizes, requests=8, tokens=60, per_tenant=3)
    answers: dict[Any, Any] = {}
    names = 0
    for _ in range(300):
        lifecycle = engine.lifecycle
        queued = [*lifecycle.valve.requests(), *lifecycle.gates.requests()]
        tenants = Counter(one.context.tenant for one in queued)
        tokens = sum(one.total for one in lifecycle.valve.requests())
        assert len(queued) <= 8 and tokens <= 60 and max(tenants.values(), default=0) <= 3
        assert lifecycle.load(0.0).queued == tenants
        expected = set()
        count = len(queued)
        for _ in range(random.choice((0, 0, 1, 5))):
            tenant, length = random.choice("abcd"), random.randint(1, 20)
            engine.add(request(f"r{names}", [1] * length, context=of(tenant)))
            if count < 8 and tokens + length <= 60 and tenants[tenant] < 3:
                count, tokens = count + 1, tokens + length
                tenants[tenant] += 1
            else:
                expected.add(f"r{names}")
            names += 1
        deltas = engine.step()
        assert {d.id for d in deltas if d.rejection is not None} == expected
        absorb(answers, deltas)
        if random.random() < 0.2 and names:
            engine.abort(f"r{random.randrange(names)}")
    run(engine)
    assert engine.metrics.rejections["queue"] > 20 and not engine.lifecycle.load(0.0).queued
