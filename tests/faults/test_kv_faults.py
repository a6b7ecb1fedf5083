"""What goes wrong with blocks on their way to other tiers and back, and with counting them."""

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.api import ReleaseCause, RequestContext, TierSpec
from jackfield.core.engine.heap import LazyHeap
from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.build import CacheSettings
from jackfield.core.kv.keys import token_bytes
from jackfield.core.testing import engines
from jackfield.core.testing.cache_lives import TierMood
from jackfield.core.testing.cache_machine import watched
from jackfield.core.testing.cache_watch import CacheWatch
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.endurance import reachable
from jackfield.core.testing.engines import GREEDY, Sizes, make_engine, request
from jackfield.core.testing.fake_pace import Pace
from jackfield.core.testing.memory import CacheKit, EveryMove, make_memory
from jackfield.core.testing.namespace_laws import view_of
from jackfield.plugins.cache.lru import Lru
from jackfield.plugins.cache.prefix import Prefix
from jackfield.plugins.cache.radix import Radix

TIMEOUT = 1.0
SETTINGS = CacheSettings(transfer_timeout=TIMEOUT)
DEPTH = 100_000


def new(cls: Any) -> Any:
    return cls(cls.Config())


def tiered(pace: Callable[[Any], Pace] | None = None, **sizes: Any) -> CacheWatch:
    kit = CacheKit([new(Prefix), EveryMove()], [new(Lru)], [TierSpec("host", 64)])
    size = Sizes(**{"num_blocks": 12, "block_size": 4, "max_tokens": 64, **sizes})
    return watched(kit, size, ManualClock(), SETTINGS, TierMood(pace))


def ask(watch: CacheWatch, prompt: list[int], tokens: int = 1) -> str:
    name = f"r{len(watch.answers)}"
    watch.add(request(name, prompt, GREEDY.with_(max_tokens=tokens, ignore_eos=True)))
    return name


@pytest.mark.parametrize("stack", [["paged", "prefix", "swap"], ["paged", "fp8", "radix", "swap"]])
def test_blocks_come_back_as_they_went(
    tiny: Path, load: Callable[..., LLM], stack: list[str]
) -> None:
    """Prompts that push each other out of the pool again and again, whatever blocks are made of."""
    swap = {"cache.swap.memory": "4MiB", "cache.swap.clean_share": 1.0}
    prompts = [
        {"prompt_token_ids": [(place * (7 + 2 * one)) % 250 + 5 for place in range(60)]}
        for one in range(6)
    ]
    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    roomy = load(tiny, **{"cache.stack": [name for name in stack if name != "swap"]})
    answers = roomy.generate(prompts, params, use_tqdm=False)
    expected = [one.outputs[0].token_ids for one in answers]
    llm = load(tiny, num_gpu_blocks_override=20, max_model_len=96, **swap, **{"cache.stack": stack})
    for _ in range(4):
        for prompt, tokens in zip(prompts, expected, strict=True):
            [output] = llm.generate(prompt, params, use_tqdm=False)
            assert output.outputs[0].token_ids == tokens
    metrics = llm.assembly.engine.lifecycle.planner.cache.metrics
    assert metrics.stored["host"] > 20 and metrics.evicted + metrics.hit_tokens > 0
    assert not sum(metrics.failed_transfers.values())


def swap_round(watch: CacheWatch, number: int) -> None:
    """One prompt that is known, and one that pushes it out."""
    for prompt in ([*range(30)], [50 + number % 5, *range(30)]):
        ask(watch, prompt)
        while watch.engine.has_work:
            watch.engine.step()
    for _ in range(10):
        watch.engine.step()
    watch.answers.clear()


def test_blocks_that_come_and_go_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        engines, "EngineSettings", partial(engines.EngineSettings, decision_log=100)
    )
    watch = tiered()
    watch.inspectors.clear()

    def kept_after(rounds: int) -> int:
        for number in range(rounds):
            swap_round(watch, number)
        assert not len(watch.engine.lifecycle.gates)
        watch.engine.lifecycle.gates._alarms = LazyHeap()  # stale entries come and go in it
        return reachable([watch.engine, watch.executor])

    before, after = kept_after(400), kept_after(800)
    assert after - before < 400, "less than one object in two rounds"
    metrics = watch.engine.lifecycle.planner.cache.metrics
    assert metrics.stored["host"] > 20 and metrics.hit_tokens > 1000
    watch.engine.check()


def wait_for_load(watch: CacheWatch) -> str:
    """A request that waits for blocks which only the tier holds, and whose load hangs."""
    ask(watch, list(range(30)))
    for _ in range(30):
        watch.step()
        for number in watch.executor.tiers.waiting:
            watch.executor.tiers.finish(number)
    for number in range(2):
        ask(watch, [100 + number] * 30)
        for _ in range(30):
            watch.step()
            for waiting in watch.executor.tiers.waiting:
                watch.executor.tiers.finish(waiting)
    name = ask(watch, list(range(30)))
    watch.step()
    gates = watch.engine.lifecycle.gates
    assert watch.answers[(name, 0)].request in gates and watch.executor.tiers.waiting
    return name


def test_who_is_aborted_while_a_tier_hangs_gives_its_blocks_back() -> None:
    watch = tiered(lambda random: Pace())
    name = wait_for_load(watch)
    pool = watch.engine.lifecycle.planner.pool
    watch.abort(name)
    touched = {one.block for one in watch.executor.tiers.under_way}
    assert pool.num_free <= pool.num_blocks - len(touched), "what is being written is not free"
    watch._clock.advance(TIMEOUT)
    watch.step()
    watch.step()
    assert pool.num_free == pool.num_blocks
    assert not watch.engine.lifecycle.planner.mover.is_busy
    watch.drain()


def test_who_waits_while_a_tier_hangs_computes_in_the_end() -> None:
    watch = tiered(lambda random: Pace())
    name = wait_for_load(watch)
    watch._clock.advance(TIMEOUT)
    watch.drain()
    assert watch.answers[(name, 0)].ended
    assert watch.engine.lifecycle.planner.cache.metrics.late_transfers["host"] > 0


@pytest.mark.parametrize("identity", [Prefix, Radix])
def test_shared_blocks_are_counted_once(identity: Any) -> None:
    """Free, held and cached blocks are all there are, in every step."""
    kit = CacheKit([new(identity)], [new(Lru)])
    size = Sizes(num_blocks=24, block_size=32, max_tokens=128, max_seqs=6, max_model_len=200)
    watch = watched(kit, size, ManualClock(), SETTINGS, TierMood())
    for number in range(12):
        ask(watch, [*range(96), number % 4, number], 5)
    pool = watch.engine.lifecycle.planner.pool
    while watch.engine.has_work:
        watch.step()
        held = {b for one in watch.engine.lifecycle.planner.running.values() for b in one.blocks}
        assert pool.num_empty + pool.num_idle + len(held) == pool.num_blocks
    watch.drain()
    assert pool.num_empty + pool.num_idle == pool.num_blocks and pool.num_idle >= 3


@pytest.mark.parametrize("identity", [Prefix, Radix])
def test_a_conversation_of_a_hundred_thousand_blocks(identity: Any) -> None:
    """It is published, found, held, given up in part and forgotten without recursion."""
    kit = CacheKit([new(identity)], [new(Lru)])
    cache = make_memory(DEPTH + 8, 1, kit).cache
    tokens = [place % 251 for place in range(DEPTH)]
    write(cache, tokens, 0)
    chain = cache.open(view_of(1, RequestContext()), token_bytes(tokens), b"")
    assert chain is not None and cache.on_device(chain) == DEPTH
    blocks = cache.acquire(chain, chain.found)
    cache.release(chain, blocks, DEPTH, 1, ReleaseCause.FINISHED)
    cache.pool.take(DEPTH // 2)
    assert len(cache.finder.entries) == DEPTH // 2 + 8
    assert cache.reset() is True
    assert cache.pool.num_empty == DEPTH + 8 - DEPTH // 2


def write(cache: BlockCache, tokens: list[int], step: int) -> None:
    """A request computes these tokens and ends."""
    chain = cache.open(view_of(0, RequestContext()), token_bytes(tokens), b"")
    assert chain is not None
    blocks = cache.pool.take(len(tokens))
    cache.publish(chain, blocks, len(tokens), step)
    cache.release(chain, blocks, len(tokens), step, ReleaseCause.FINISHED)


def test_requests_leave_no_trace_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of one token each, no two alike, in a cache that is full."""
    monkeypatch.setattr(
        engines, "EngineSettings", partial(engines.EngineSettings, decision_log=100)
    )
    kit = CacheKit([new(Prefix)], [new(Lru)])
    engine = make_engine(Sizes(num_blocks=64, block_size=1, max_seqs=32, max_tokens=64), cache=kit)
    held_after(engine, 0, 12_000)
    tracemalloc.start()
    try:
        sizes = [held_after(engine, start, 4000) for start in (12_000, 16_000)]
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 20_000, f"bytes that are held: {sizes}"
    assert len(engine.lifecycle.planner.cache.finder.entries) <= 64


def held_after(engine: Any, start: int, count: int) -> int:
    """Bytes that are allocated when so many requests more have ended."""
    params = GREEDY.with_(max_tokens=1)
    for number in range(start, start + count, 32):
        for one in range(number, number + 32):
            engine.add(request(f"r{one}", [one % 1000], params))
        while engine.has_work:
            engine.step()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
