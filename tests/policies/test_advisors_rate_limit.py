"""Token buckets of tenants, against what they promise: a bound in every window, exact waits."""

from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.core.api import (
    Event,
    EventKind,
    FinishReason,
    LoadView,
    RequestContext,
    RequestView,
    Verdict,
    VerdictKind,
)
from jackfield.core.bench.null_executor import NullExecutor
from jackfield.core.engine.request import Request
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request, run
from jackfield.core.testing.simulation import Job, Simulation
from jackfield.plugins.schedulers.rate_limit import Limit, RateLimit, RateLimitConfig

SIZES = Sizes(256, 16, max_tokens=256, max_seqs=16, max_model_len=512)


def policy(**limits: Limit) -> RateLimit:
    config = RateLimitConfig(limits=limits)
    return RateLimit(config, context_for(SIZES, ManualClock()))


class Door:
    """Asks one policy as an engine would, and remembers what was let in and used."""

    def __init__(self, rate_limit: RateLimit) -> None:
        self.policy = rate_limit
        self.now = 0.0
        self.used: list[list[float]] = []
        self.running: list[tuple[Request, int]] = []
        self._next = 0

    def make(self, prompt: int, most: int, context: RequestContext, name: str = "") -> Request:
        self._next += 1
        return Request(
            self._next, name or f"r{self._next}", 0, [1] * prompt, GREEDY, context,
            arrival=self.now, seed=0, max_tokens=most, eos_ids=frozenset(),
        )  # fmt: skip

    def ask(self, *records: Request) -> Sequence[Verdict]:
        return ask(self.policy, self.now, [record.view for record in records])

    def call(self, prompt: int, most: int, answers: int = 1, tenant: str = "t") -> Verdict:
        """One call of a tenant; what is let in runs until `end`."""
        context = RequestContext(tenant)
        name = f"c{self._next}"
        records = [self.make(prompt, most, context, name) for _ in range(answers)]
        verdicts = self.ask(*records)
        assert len(set(verdicts)) == 1, "the answers of a call are judged together"
        if verdicts[0].kind is not VerdictKind.REJECT:
            for record in records:
                record.max_tokens = min(most, verdicts[0].max_tokens or most)
                self.used.append([self.now, 0])
                self.running.append((record, len(self.used) - 1))
        return verdicts[0]

    def end(self, index: int, answer: int, kind: EventKind = EventKind.FINISHED) -> None:
        """A running request ends after so many tokens, or after all it may have."""
        record, place = self.running.pop(index % len(self.running))
        answer = min(answer, record.max_tokens)
        record.computed = len(record.prompt) + answer
        self.used[place][1] = record.computed
        self.policy.observe([Event(kind, record.view, self.now, answer)])


def ask(rate_limit: RateLimit, now: float, views: Sequence[RequestView]) -> Sequence[Verdict]:
    return rate_limit.admit(views, LoadView(now, 0, 0, 0, 0, 8, 8, 0, {}))


CALLS = st.tuples(
    st.sampled_from([0.0, 0.01, 0.5, 3.0, 20.0]),
    st.sampled_from(["call", "call", "end", "end", "call two"]),
    st.integers(1, 60),
    st.integers(0, 60),
)


@pytest.mark.parametrize("burst", [5.0, 20.0])
def test_no_window_gets_more_than_burst_and_rate(burst: float) -> None:
    """Counted by what requests really used, at the time when they were let in."""
    rate, capacity = 5.0, int(5.0 * burst)
    for seed in range(100):
        random, door = Random(seed), Door(policy(t=Limit(tokens_per_minute=300.0, burst=burst)))
        for _ in range(80):
            door.now += random.choice((0.0, 0.0, 0.1, burst / 3, burst))
            if door.running and random.random() < 0.5:
                door.end(random.randrange(9), random.choice((0, 0, 1000)))
            else:
                most = random.choice((1, capacity // 3, capacity))
                door.call(random.randint(1, 4), most, random.choice((1, 1, 2)))
        while door.running:
            door.end(0, 1000)
        for start, (begin, _) in enumerate(door.used):
            total = 0.0
            for end, tokens in door.used[start:]:
                total += tokens
                assert total <= capacity + (end - begin) * rate + 1e-3


def test_what_time_has_paid_for_is_not_given_back_too() -> None:
    """A reservation that has passed is no credit for a second burst at once."""
    door = Door(policy(t=Limit(tokens_per_minute=600, burst=10)))
    door.call(1, 99)
    door.now = 10.0
    door.call(1, 99)
    door.end(0, 0)
    assert door.call(1, 99).retry_after == pytest.approx(10.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(CALLS, min_size=5, max_size=40))
def test_who_comes_back_after_exactly_that_time_is_let_in(
    calls: list[tuple[float, str, int, int]],
) -> None:
    limit = Limit(tokens_per_minute=300.0, requests_per_minute=40.0, burst=12.0)
    door = Door(policy(t=limit))
    for pause, what, first, second in calls:
        door.now += pause
        if what == "end":
            if door.running:
                door.end(first, second)
            continue
        answers = 1 + what.endswith("two")
        verdict = door.call(first, second, answers)
        if verdict.kind is VerdictKind.REJECT and verdict.retry_after:
            assert comes_back(door, verdict.retry_after, first, second, answers)
            early = verdict.retry_after - 0.01
            assert early <= 0 or not comes_back(door, early, first, second, answers)


def comes_back(door: Door, after: float, prompt: int, most: int, answers: int) -> bool:
    later = Door(deepcopy(door.policy))
    later.now, later._next = door.now + after, 10_000
    return later.call(prompt, most, answers).kind is not VerdictKind.REJECT


def test_requests_per_minute() -> None:
    door = Door(policy(t=Limit(requests_per_minute=6)))
    kinds = [door.call(1, 1).kind for _ in range(8)]
    assert kinds == [VerdictKind.ACCEPT] * 6 + [VerdictKind.REJECT] * 2
    assert door.call(1, 1) == Verdict.reject("rate_limit_exceeded", pytest.approx(10.0))
    assert door.call(1, 1, answers=3).retry_after == pytest.approx(30.0)
    while door.running:
        door.end(0, 1)
    assert door.call(1, 1).kind is VerdictKind.REJECT, "who has ended still counts"
    door.now = 10.0
    assert door.call(1, 1).kind is VerdictKind.ACCEPT


def test_what_was_not_used_is_given_back() -> None:
    door = Door(policy(t=Limit(tokens_per_minute=600)))
    assert door.call(100, 500).kind is VerdictKind.ACCEPT
    assert door.call(10, 10).retry_after == pytest.approx(2.0)
    door.end(0, 80)
    assert [door.call(10, 200).kind for _ in range(3)] == [VerdictKind.ACCEPT] * 2 + [
        VerdictKind.REJECT
    ]


@pytest.mark.parametrize(
    ("kind", "computed", "requests", "tokens"),
    [
        (EventKind.REJECTED, 0, 0, 0),
        (EventKind.ABORTED, 0, 1, 0),
        (EventKind.FAILED, 0, 1, 0),
        (EventKind.ABORTED, 30, 1, 100),
    ],
)
def test_who_never_ran_used_no_tokens(
    kind: EventKind, computed: int, requests: int, tokens: int
) -> None:
    door = Door(policy(t=Limit(tokens_per_minute=600, requests_per_minute=2)))
    door.call(100, 500)
    record, _ = door.running.pop()
    record.computed = computed
    door.policy.observe([Event(kind, record.view, 0.0, 0)])
    assert door.call(1, 599 - tokens).kind is VerdictKind.ACCEPT
    assert (door.call(0, 0).kind is VerdictKind.REJECT) == bool(requests)


def test_a_call_beyond_the_burst_gets_shorter_answers() -> None:
    door = Door(policy(t=Limit(tokens_per_minute=600, burst=10)))
    assert door.call(40, 1000) == Verdict.degrade(60, "rate_limit")
    door = Door(policy(t=Limit(tokens_per_minute=600, burst=10)))
    assert door.call(40, 1000, answers=2) == Verdict.degrade(10, "rate_limit")
    never = Verdict.reject("rate_limit_too_small")
    assert door.call(100, 1) == door.call(50, 1, answers=2) == never
    door = Door(policy(t=Limit(requests_per_minute=6, burst=10)))
    assert door.call(1, 1, answers=2) == never
    assert door.call(1, 1).kind is VerdictKind.ACCEPT, "a burst is worth one request at least"


def test_who_was_deferred_by_others_is_not_charged_twice() -> None:
    door = Door(policy(t=Limit(tokens_per_minute=600, burst=10)))
    record = door.make(40, 1000, RequestContext("t"))
    first = door.ask(record)
    assert door.ask(record) == first == [Verdict.degrade(60, "rate_limit")]


def test_the_tenant_then_its_tier_then_everybody() -> None:
    two, three = Limit(requests_per_minute=2), Limit(requests_per_minute=3)
    door = Door(policy(**{"a": two, "gold": three, "*": Limit(requests_per_minute=1)}))

    def accepted(tenant: str, tier: str) -> int:
        records = [door.make(1, 1, RequestContext(tenant, tier)) for _ in range(9)]
        return sum(verdict.kind is VerdictKind.ACCEPT for verdict in door.ask(*records))

    assert accepted("a", "gold") == 2
    assert accepted("b", "gold") == 3 and accepted("c", "gold") == 3
    assert accepted("b", "default") == 1 and accepted("d", "default") == 1


def test_labels_are_limits_of_a_tenant_without_limits_of_its_own() -> None:
    door = Door(policy(a=Limit(requests_per_minute=1), gold=Limit(requests_per_minute=5)))

    def accepted(tenant: str, **labels: str) -> int:
        context = RequestContext(tenant, "gold", labels=labels)
        records = [door.make(1, 1, context) for _ in range(9)]
        return sum(verdict.kind is VerdictKind.ACCEPT for verdict in door.ask(*records))

    assert accepted("b", requests_per_minute="3", team="x") == 3
    assert accepted("c", tokens_per_minute="8") == 4
    assert accepted("a", requests_per_minute="3") == 1
    assert accepted("d", team="x") == 5


def test_without_a_limit_nobody_is_refused() -> None:
    door = Door(policy(other=Limit(requests_per_minute=1)))
    assert {door.call(1000, 10**6).kind for _ in range(100)} == {VerdictKind.ACCEPT}


def test_memory_is_bounded_over_100_000_tenants() -> None:
    rate_limit = policy(**{"*": Limit(tokens_per_minute=6000, requests_per_minute=6000)})
    door = Door(rate_limit)
    record = door.make(1, 10, RequestContext())
    for number in range(100_000):
        door.now += 0.01
        record.handle, record.context = number, RequestContext(f"t{number}")
        rate_limit.admit([record.view], LoadView(door.now, 0, 0, 0, 0, 8, 8, 0, {}))
        rate_limit.observe([Event(EventKind.ABORTED, record.view, door.now, 0)])
    assert len(rate_limit._buckets) <= 10_000 and not rate_limit._reserved
    assert all(not bucket._reserved for pair in rate_limit._buckets.values() for bucket in pair)


def test_on_an_engine_a_tenant_gets_its_rate_and_others_are_not_touched() -> None:
    """A tenant that sends all the time, and comes back when it is told to, for a minute."""
    random = Random(3)
    limit = Limit(tokens_per_minute=6000, burst=10)
    config = RateLimitConfig(limits={"greedy": limit})
    simulation = Simulation(SIZES, advisors=lambda context: {"rate": RateLimit(config, context)})
    jobs = [
        Job(n * 0.1, random.randint(10, 60), random.randint(1, 60), 100, RequestContext(tenant))
        for n in range(600)
        for tenant in ("greedy", "modest")
    ]
    courses = simulation.run(jobs)
    greedy = [one for one in courses if one.job.context.tenant == "greedy" and one.times]
    used = sum(one.job.prompt + len(one.times) for one in greedy)
    assert 0.9 * 60 * 100 <= used <= (60 + 10) * 100
    assert all(one.times for one in courses if one.job.context.tenant == "modest")


def test_every_answer_of_a_refused_call_is_refused() -> None:
    clock = ManualClock()
    engine = make_engine(
        SIZES,
        advisors={"rate": policy(**{"*": Limit(requests_per_minute=4)})},
        executor=NullExecutor(),
        clock=clock,
    )
    engine.add(request("a", [1], GREEDY.with_(n=3)))
    engine.add(request("b", [1], GREEDY.with_(n=2)))
    found: Any = run(engine)
    assert {found[("a", index)].finish for index in range(3)} == {FinishReason.LENGTH}
    assert {found[("b", index)].finish for index in range(2)} == {FinishReason.ERROR}
    clock.advance(15.0)
    engine.add(request("b", [1], GREEDY.with_(n=2)))
    assert {answer.finish for answer in run(engine).values()} == {FinishReason.LENGTH}
