"""What answers leave behind may be put in order later, and nobody can tell."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from jackfield.core.api import CacheHints, Keep, ReleaseCause, Released, RequestContext
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.messages import Delta
from jackfield.core.engine.snapshot import take_snapshot
from jackfield.core.engine.steps import StepResult
from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.cache_snapshot import CacheSnapshot
from jackfield.core.kv.keys import token_bytes
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import (
    GREEDY,
    VOCAB,
    Sizes,
    expected_answer,
    make_engine,
    request,
)
from jackfield.core.testing.fake_executor import FakeExecutor, Ticket
from jackfield.core.testing.memory import CacheKit
from jackfield.core.testing.namespace_laws import view_of
from jackfield.plugins.cache.lru import Lru
from jackfield.plugins.cache.prefix import Prefix
from jackfield.plugins.cache.radix import Radix

PLENTY = Sizes(num_blocks=64, max_tokens=32)
TWO_STEPS = replace(PLENTY, overlap=1)
LONG = GREEDY.with_(max_tokens=9, ignore_eos=True)


class Failing(FakeExecutor):
    """Whose steps of these numbers fail when they are collected."""

    def __init__(self, sizes: Sizes, numbers: Sequence[int] = ()) -> None:
        super().__init__(sizes.block_size, VOCAB)
        self._numbers = numbers

    def collect(self, ticket: Ticket) -> StepResult:
        """Or raise."""
        if ticket.plan.number in self._numbers:
            raise RuntimeError("no")
        return super().collect(ticket)


def engine_of(
    sizes: Sizes = PLENTY, identity: Any = Prefix, fails: Sequence[int] = (), **more: Any
) -> Engine:
    kit = CacheKit([identity(identity.Config()), *more.pop("plugins", ())], [Lru(Lru.Config())])
    return make_engine(sizes, cache=kit, executor=Failing(sizes, fails), **more)


def cache_of(engine: Engine) -> BlockCache:
    return engine.lifecycle.planner.cache


def answer(engine: Engine, name: str, prompt: Sequence[int], **given: Any) -> list[Delta]:
    """All news of one request that is run to its end, with nothing put in order at the end."""
    engine.add(request(name, prompt, given.pop("params", LONG), **given))
    found = []
    while engine.has_work:
        found += engine.step(later=True)
    return found


def left(engine: Engine) -> int:
    """Blocks that are not in order."""
    return cache_of(engine).pool.num_left


def contents(engine: Engine) -> CacheSnapshot:
    engine.check()
    return take_snapshot(engine).cache


def test_blocks_count_as_free_before_they_are_in_order() -> None:
    engine = engine_of()
    answer(engine, "a", range(10))
    pool = cache_of(engine).pool
    assert left(engine) == 5 and (pool.num_free, pool.num_live) == (64, 0)
    assert len(cache_of(engine).finder.entries) == 2, "the full blocks of the prompt"
    engine.settle()
    assert left(engine) == 0 and (pool.num_free, pool.num_live) == (64, 0)
    found = contents(engine)
    assert (found.live, found.cached, found.free, found.contents) == (0, 4, 60, 4)


def test_without_the_wish_everything_is_in_order_at_once() -> None:
    engine = engine_of()
    engine.add(request("a", range(10), LONG))
    while engine.has_work:
        engine.step()
    assert left(engine) == 0 and len(cache_of(engine).finder.entries) == 4


@pytest.mark.parametrize("identity", [Prefix, Radix])
def test_who_begins_alike_finds_the_whole_answer(identity: Any) -> None:
    engine = engine_of(identity=identity)
    prompt = list(range(10))
    whole = [*prompt, *expected_answer(prompt, 9)]
    answer(engine, "a", prompt)
    assert left(engine)
    [*_, last] = answer(engine, "b", [*whole, 5])
    assert last.num_cached == 16, "four full blocks of which the last two are of the answer"


def test_who_begins_otherwise_is_planned_first() -> None:
    engine = engine_of()
    answer(engine, "a", range(10))
    forward, seen = engine._executor.forward, list[int]()

    def noted(plan: Any) -> Any:
        engine.settle()  # from inside a step, which does nothing
        seen.append(left(engine))
        return forward(plan)

    engine._executor.forward = noted  # type: ignore[method-assign]
    answer(engine, "b", range(50, 60))
    assert seen[0] == 5 and seen[1:] == [0] * (len(seen) - 1)


def test_a_short_prompt_may_go_on_like_anybody() -> None:
    """Its own beginning has no key, so that its blocks do not wait."""
    engine = engine_of()
    prompt = [1, 2]
    answer(engine, "a", prompt)
    assert left(engine) == 0
    whole = [*prompt, *expected_answer(prompt, 9)]
    [*_, last] = answer(engine, "b", whole)
    assert last.num_cached == 8


def test_who_has_become_long_may_begin_like_anybody() -> None:
    """A preempted request whose prompt was short looks for what it has answered, too."""
    cache = cache_of(engine_of())
    cache.defers = True
    chain = cache.open(view_of(0, RequestContext()), token_bytes(range(4)), b"")
    assert chain is not None
    cache.release(chain, cache.pool.take(2), 8, 0, ReleaseCause.FINISHED, range(4, 8))
    assert cache.pool.num_left == 2
    other = cache.open(view_of(1, RequestContext()), token_bytes(range(2)), b"")
    assert other is not None and not other.head
    other.extend(range(2, 8))
    assert len(cache.find(other)) == 2


def test_an_answer_goes_on_behind_what_somebody_else_has_published() -> None:
    engine = engine_of()
    for name, scores in (("a", None), ("b", 1)):
        params = LONG.with_(temperature=1.0, seed=scores, prompt_logprobs=scores)
        engine.add(request(name, range(10), params))
    while engine.has_work:
        engine.step(later=True)
    assert left(engine)
    assert contents(engine).contents == 6, "two of the prompt, and two of each answer"


def test_a_shortage_puts_in_order_what_was_left_and_gives_it_up() -> None:
    engine = engine_of(Sizes(num_blocks=8, max_tokens=32))
    answer(engine, "a", range(10))
    assert left(engine) == 5
    deltas = answer(engine, "b", range(100, 123))
    tokens = [token for delta in deltas for token in delta.tokens]
    assert tokens == expected_answer(range(100, 123), 9)
    assert contents(engine).evicted > 0


def test_a_reset_forgets_it_too() -> None:
    engine = engine_of()
    answer(engine, "a", range(10))
    assert engine.reset_prefix_cache() and left(engine) == 0
    found = contents(engine)
    assert (found.free, found.contents, found.dropped) == (64, 0, 4)


def test_an_abort_in_between() -> None:
    engine = engine_of()
    answer(engine, "a", range(10))
    engine.add(request("b", range(50, 70), LONG))
    engine.abort("b")
    assert left(engine) == 5, "it held no block"
    engine.add(request("c", range(50, 70), LONG))
    engine.step(later=True)
    answer_of_d = request("d", range(70, 80), GREEDY.with_(max_tokens=2, ignore_eos=True))
    engine.add(answer_of_d)
    while "d" in {one.id for one in engine.requests()}:
        engine.step(later=True)
    assert left(engine)
    engine.abort("c")
    assert left(engine) == 0, "one that leaves after others comes after them"
    assert contents(engine).live == 0


def test_what_a_failed_step_was_to_write_goes() -> None:
    """The answer is over when the step fails that computes its last token in vain."""
    sizes = Sizes(num_blocks=64, max_tokens=32, overlap=1)
    prompt = list(range(7))
    end = expected_answer(prompt, 3)[-1]
    engines = [engine_of(sizes, fails=[3], eos_ids=frozenset([end])) for _ in range(2)]
    for engine, later in zip(engines, (True, False), strict=True):
        engine.add(request("a", prompt, GREEDY))
        while engine.has_work:
            engine.step(later=later)
    found = contents(engines[0])
    assert found == contents(engines[1])
    assert (found.published, found.dropped, found.contents) == (2, 1, 1)


@pytest.mark.parametrize("hints", [CacheHints(pin=True), CacheHints(ttl=5.0)])
def test_what_was_asked_to_be_kept_is_kept_at_once(hints: CacheHints) -> None:
    engine = engine_of()
    answer(engine, "a", range(10), context=RequestContext(cache=hints))
    assert left(engine) == 0 and len(cache_of(engine).finder.entries) == 4


def test_what_a_plugin_drops_goes_at_once() -> None:
    class Drops:
        def retain(self, released: Sequence[Released]) -> list[Keep]:
            return [Keep(drop=True) for _ in released]

    engine = engine_of(plugins=[Drops()])
    answer(engine, "a", range(10))
    assert left(engine) == 0 and not cache_of(engine).finder.entries


def test_what_expires_waits_for_what_builds_on_it() -> None:
    """Were the later one not in order first, the first would seem to be in use."""
    clock = ManualClock()
    engine = engine_of(clock=clock)
    prompt = list(range(10))
    answer(engine, "a", prompt, context=RequestContext(cache=CacheHints(ttl=5.0)))
    answer(engine, "b", prompt)
    assert left(engine)
    clock.advance(6.0)
    answer(engine, "c", range(50, 60))
    assert contents(engine).contents == 4, "only those of the last"


class Twins:
    """Two engines that are told the same. One puts everything in order at once."""

    def __init__(self, random: Random) -> None:
        self._random = random
        sizes = Sizes(
            num_blocks=random.choice([12, 24, 64]),
            max_seqs=random.choice([2, 4]),
            overlap=random.choice([0, 1]),
        )
        fails = random.sample(range(60), random.choice([0, 0, 3]))
        identity = random.choice([Prefix, Radix])
        self.engines = [engine_of(sizes, identity, fails) for _ in range(2)]
        self._count = 0
        self.waited = 0

    def add(self) -> None:
        """A request that begins like others, goes on like one, or is new."""
        random = self._random
        head = [random.randrange(3)] * random.choice([2, 4, 9])
        prompt = [*head, *(random.randrange(2) for _ in range(random.randrange(12)))]
        if random.random() < 0.3:
            prompt += expected_answer(prompt, random.randrange(6))
        params = GREEDY.with_(
            max_tokens=random.randrange(1, 9), n=random.choice([1, 1, 3]), ignore_eos=True
        )
        hints = CacheHints(pin=random.random() < 0.1, salt=random.choice(["", "", "x"]))
        for engine in self.engines:
            context = RequestContext(cache=hints)
            engine.add(request(f"r{self._count}", prompt, params, context=context))
        self._count += 1

    def step(self) -> None:
        """The news are the same, and so is what is free and live."""
        at_once, later = self.engines
        assert at_once.step() == later.step(later=True)
        at_once.check()
        self.waited += left(later)
        self.compare()

    def abort(self) -> None:
        """One of the last."""
        name = f"r{self._count - self._random.randrange(1, 5)}"
        for engine in self.engines:
            engine.abort(name)

    def reset(self) -> None:
        """Which both do, or none."""
        first, second = (engine.reset_prefix_cache() for engine in self.engines)
        assert first == second

    def compare(self) -> None:
        """What can be seen without putting anything in order."""
        first, second = (engine.lifecycle.load(0.0) for engine in self.engines)
        assert first == second
        pools = [cache_of(engine).pool for engine in self.engines]
        assert pools[0].num_live == pools[1].num_live

    def settle(self) -> None:
        """And what is seen afterwards."""
        self.engines[1].settle()
        first, second = (contents(engine) for engine in self.engines)
        assert first == second


@pytest.mark.parametrize("seed", range(40))
def test_nobody_can_tell(seed: int) -> None:
    random = Random(seed)
    twins = Twins(random)
    acts = [twins.add] * 3 + [twins.step] * 6 + [twins.abort, twins.reset, twins.settle]
    for _ in range(150):
        random.choice(acts)()
    while twins.engines[0].has_work:
        twins.step()
    twins.settle()
    assert twins.waited > 0


def entries(engine: Engine) -> int:
    return len(cache_of(engine).finder.entries)


def test_what_a_step_writes_is_known_while_as_many_are_under_way_as_may_be() -> None:
    engine = engine_of(TWO_STEPS)
    engine.add(request("a", range(10), LONG))
    engine.step(later=True)
    assert entries(engine) == 0, "nothing holds up the next launch"
    engine.step(later=True)
    assert entries(engine) == 2


@pytest.mark.parametrize("identity", [Prefix, Radix])
def test_who_comes_meanwhile_finds_it(identity: Any) -> None:
    engine = engine_of(TWO_STEPS, identity)
    engine.add(request("a", range(10), LONG))
    engine.step(later=True)
    [*_, last] = answer(engine, "b", [*range(10), 7])
    assert last.num_cached == 8


def test_whoever_ends_before_has_published() -> None:
    engine = engine_of(TWO_STEPS)
    engine.add(request("a", range(10), LONG))
    engine.step(later=True)
    engine.abort("a")
    assert entries(engine) == 2
    engine.check()


def test_what_a_failed_step_was_to_write_is_not_known() -> None:
    engine = engine_of(TWO_STEPS, fails=[0])
    engine.add(request("a", range(10), LONG))
    engine.step(later=True)
    engine.step(later=True)
    assert entries(engine) == 0
    engine.check()


def test_many_departures_are_put_in_order_a_few_at_a_time() -> None:
    engine = engine_of(Sizes(num_blocks=256, max_tokens=256, max_seqs=32))
    for i in range(24):
        engine.add(request(f"a{i}", range(20 * i, 20 * i + 10), LONG))
    while engine.has_work:
        engine.step(later=True)
    assert left(engine) == 24 * 5
    engine.add(request("b", range(600, 605), LONG))
    seen = []
    for _ in range(3):
        engine.step(later=True)
        seen.append(left(engine))
    assert seen == [120 - 65, 0, 0]
    assert contents(engine).contents == 24 * 4 + 1
