"""The choice within the first requests of a leaf, and keys that are asked again."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from jackfield.core.api import Discipline, PolicyConfig, PolicyContext, Rank, RequestView
from jackfield.core.engine.heap import LazyHeap
from jackfield.core.engine.services import Services
from jackfield.core.engine.window import BYPASSES
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request, run

ONE = GREEDY.with_(max_tokens=1)
SIZES = Sizes(num_blocks=64, max_seqs=1, share=0.0)


class Shortest(Discipline[None]):
    """The shortest prompt of the first four."""

    lookahead = 4

    def __init__(self, config: PolicyConfig, context: PolicyContext) -> None:
        super().__init__(config, context)
        self.seen: list[list[str]] = []

    def pick(self, heads: Sequence[RequestView], now: float) -> int:
        self.seen.append([one.id for one in heads])
        lengths = [one.num_prompt_tokens for one in heads]
        return lengths.index(min(lengths))


class LatestWish(Discipline[None]):
    """Ordered by a wish that may change while a request waits."""

    def __init__(self, config: PolicyConfig, context: PolicyContext) -> None:
        super().__init__(config, context)
        self.wishes: dict[str, float] = {}
        self.views: dict[str, RequestView] = {}
        self.asked: list[str] = []

    def key(self, request: RequestView, now: float) -> Rank:
        self.asked.append(request.id)
        self.views[request.id] = request
        return self.wishes.get(request.id, 0.0)


def engine_of(policy: type[Discipline[Any]], sizes: Sizes = SIZES) -> tuple[Any, Any]:
    services, clock = Services(), ManualClock()
    discipline = policy(PolicyConfig(), context_for(sizes, clock, services))
    engine = make_engine(sizes, disciplines=[discipline], clock=clock, services=services)
    return engine, discipline


def order_of(engine: Any) -> list[str]:
    found = []
    while engine.has_work:
        found += [delta.id for delta in engine.step()]
    return found


def test_first_is_what_a_sort_would_give() -> None:
    random = Random(0)
    heap: LazyHeap[int] = LazyHeap()
    keys: dict[int, tuple[float, int]] = {}
    for number in range(4000):
        item = random.randrange(300)
        if random.random() < 0.3:
            heap.remove(item)
            keys.pop(item, None)
        else:
            keys[item] = (random.randrange(50), number)
            heap.push(item, keys[item][0])
        if number % 50 == 0:
            ordered = sorted(keys, key=keys.__getitem__)
            count = random.choice((0, 1, 7, 64, 1000))
            assert heap.first(count) == ordered[:count]
            assert heap.first(1) == [heap.peek()] or not ordered


def test_the_window_moves_as_requests_are_admitted() -> None:
    engine, policy = engine_of(Shortest)
    for name, length in (("a", 9), ("b", 5), ("c", 7), ("d", 8), ("e", 1), ("f", 6)):
        engine.add(request(name, [1] * length, ONE))
    assert order_of(engine) == ["b", "e", "f", "c", "d", "a"]
    assert policy.seen[:2] == [["a", "b", "c", "d"], ["a", "c", "d", "e"]]
    assert ["a"] not in policy.seen, "nobody is asked where there is no choice"


@pytest.mark.parametrize("lookahead", [2, 4])
def test_nobody_is_passed_over_without_bound(lookahead: int) -> None:
    class Last(Discipline[None]):
        def pick(self, heads: Sequence[RequestView], now: float) -> int:
            return len(heads) - 1

    Last.lookahead = lookahead
    engine, _ = engine_of(Last)
    engine.add(request("first", [1], ONE))
    order: list[str] = []
    for number in range(200):
        engine.add(request(f"r{number}", [1], ONE))
        order += [delta.id for delta in engine.step()]
    limit = BYPASSES * lookahead
    assert order.index("first") <= limit + lookahead
    assert order.index("first") >= limit, "the discipline is free until then"


@pytest.mark.parametrize("answer", [-1, 4, 10**9, None, "0", 1.0, True, float("nan")])
def test_an_answer_that_is_no_index_is_a_fault_and_the_first(answer: Any) -> None:
    class Wrong(Discipline[None]):
        lookahead = 4

        def pick(self, heads: Sequence[RequestView], now: float) -> int:
            return answer  # type: ignore[no-any-return]

    engine, _ = engine_of(Wrong)
    for name in "abcdef":
        engine.add(request(name, [1], ONE))
    assert order_of(engine) == list("abcdef")
    assert list(engine.faults()) == ["wrong"] and "not an index below" in engine.faults()["wrong"]


@pytest.mark.parametrize("lookahead", [65, -1, None, "4", True])
def test_a_lookahead_out_of_bounds_is_a_fault_and_none(lookahead: Any) -> None:
    class Far(Shortest):
        pass

    Far.lookahead = lookahead
    engine, policy = engine_of(Far)
    for name in "abc":
        engine.add(request(name, [1], ONE))
    assert order_of(engine) == list("abc") and policy.seen == []
    assert engine.fault_counts() == {"far": 1}


def test_a_key_is_asked_again_when_the_policy_wants_it() -> None:
    engine, policy = engine_of(LatestWish)
    for name in "abc":
        engine.add(request(name, [1], ONE))
    assert [delta.id for delta in engine.step()] == ["a"]
    policy.wishes["c"] = -1.0
    policy.context.rekey(policy.views["c"])
    policy.context.rekey(policy.views["c"])
    policy.context.rekey(policy.views["a"])
    assert order_of(engine) == ["c", "b"]
    assert policy.asked == ["a", "b", "c", "c"]


def test_asking_all_keys_again_in_every_step_does_not_grow() -> None:
    engine, policy = engine_of(LatestWish)
    for number in range(100):
        engine.add(request(f"r{number}", [1], ONE))
    while engine.has_work:
        for view in policy.views.values():
            policy.context.rekey(view)
        engine.step()
        (root,) = engine.lifecycle.tree.nodes()
        assert root.queue.num_entries <= 4 * 100 + 64
    policy.context.rekey(object())


def test_cached_tokens_are_those_of_another_answer_to_the_prompt() -> None:
    engine, policy = engine_of(LatestWish, Sizes(num_blocks=64, max_seqs=1, block_size=4))
    engine.add(request("pair", [1] * 11, GREEDY.with_(n=2, max_tokens=4)))
    engine.add(request("alone", [1] * 11, ONE))
    engine.step()
    assert policy.context.cached_tokens(policy.views["alone"]) == 0
    member = engine._requests["pair"][1].view
    assert policy.context.cached_tokens(member) == 10
    run(engine)
    assert policy.context.cached_tokens(member) in (0, 10)
    assert policy.context.cached_tokens("no view") == 0


def test_without_an_engine_nothing_is_known() -> None:
    context = context_for(SIZES, ManualClock())
    view = object()
    assert context.cached_tokens(view) == 0  # type: ignore[arg-type]
    assert context.predict.step_seconds(1, 1, 1) is None
