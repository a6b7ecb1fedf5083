"""What metrics show of the cache: every block in one state, and what tiers have done."""

from jackfield.core.api import TierSpec
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.snapshot import take_snapshot
from jackfield.core.kv.build import CacheSettings
from jackfield.core.kv.cache_snapshot import CacheSnapshot, TierSnapshot
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, VOCAB, Sizes, make_engine, request, run
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.fake_memory import FakeMemory
from jackfield.core.testing.fake_pace import AtOnce, Pace
from jackfield.core.testing.fake_tiers import FakeTiers
from jackfield.core.testing.memory import CacheKit, EveryMove
from jackfield.core.testing.naive_index import NaiveIndex

SIZES = Sizes(num_blocks=16)
SHORT = GREEDY.with_(max_tokens=4)


class Index:
    """An identity plugin for tests."""

    def identity(self, block_size: int) -> NaiveIndex:
        """A new index."""
        return NaiveIndex(block_size)


def now(engine: Engine) -> CacheSnapshot:
    """What a scrape would find; the pool's blocks are always all there."""
    engine.check()
    found = take_snapshot(engine).cache
    states = (found.live, found.cached, found.free, found.moving)
    assert sum(states) == SIZES.num_blocks, states
    return found


def test_blocks_are_live_then_cached_then_free() -> None:
    engine = make_engine(SIZES, cache=CacheKit(plugins=(Index(),)))
    found = now(engine)
    assert (found.live, found.cached, found.free, found.contents) == (0, 0, 16, 0)
    assert found.tiers == {}
    engine.add(request("a", range(10), SHORT))
    engine.step()
    assert now(engine).live == 3 and now(engine).cached == 0
    run(engine)
    after = now(engine)
    assert (after.live, after.cached, after.free) == (0, 3, 13)
    assert (after.contents, after.published, after.pinned) == (3, 3, 0)
    assert (after.queried_tokens, after.hit_tokens) == (10, 0)
    assert engine.reset_prefix_cache()
    after = now(engine)
    assert (after.cached, after.free, after.contents, after.dropped) == (0, 16, 0, 3)


def test_hits_of_a_first_seat_and_blocks_that_are_evicted() -> None:
    engine = make_engine(SIZES, cache=CacheKit(plugins=(Index(),)))
    for name in ("a", "b"):
        engine.add(request(name, range(10), SHORT))
        run(engine)
    found = now(engine)
    assert (found.queried_tokens, found.hit_tokens, found.resumed_queried_tokens) == (20, 8, 0)
    assert (found.copied, engine.cache_metrics.hit_tokens) == (0, 8)
    engine.add(request("whole", range(8), SHORT))
    run(engine)
    found = now(engine)
    assert (found.queried_tokens, found.hit_tokens, found.copied) == (28, 15, 1)
    engine.add(request("c", range(100, 160), SHORT))
    run(engine)
    found = now(engine)
    assert found.evicted == 3 and found.published == 18
    assert found.contents == found.cached == 15


def with_tier(pace: Pace, clock: ManualClock, num_slots: int = 8) -> Engine:
    """After a request whose three blocks are copied to a tier of so many slots at that pace."""
    tiers = FakeTiers(FakeMemory(SIZES.block_size), pace, clock=clock)
    executor = FakeExecutor(SIZES.block_size, VOCAB, tiers=tiers)
    kit = CacheKit(plugins=(Index(), EveryMove()), tiers=(TierSpec("host", num_slots),))
    settings = CacheSettings(transfer_timeout=5.0)
    engine = make_engine(SIZES, executor=executor, clock=clock, cache=kit, cache_settings=settings)
    engine.add(request("a", range(10), SHORT))
    run(engine)
    for _ in range(4):
        engine.step()
    return engine


def test_a_tier_has_what_was_stored() -> None:
    engine = with_tier(AtOnce(), ManualClock())
    found = now(engine)
    assert found.tiers == {"host": TierSnapshot(8, 3, 3, 0, 0, 0, False)}
    assert (found.contents, found.cached, found.moving) == (3, 3, 0)


def test_what_was_given_up_is_loaded() -> None:
    engine = with_tier(AtOnce(), ManualClock(), num_slots=32)
    engine.add(request("b", range(100, 160), SHORT))
    run(engine)
    engine.add(request("c", range(10), SHORT))
    run(engine)
    found = now(engine)
    assert found.tiers["host"].loaded == 2
    assert found.hit_tokens == 8


def test_transfers_that_hang_keep_their_blocks_and_switch_the_tier_off() -> None:
    clock = ManualClock()
    engine = with_tier(Pace(), clock)
    found = now(engine)
    assert (found.live, found.cached, found.moving) == (0, 0, 3)
    assert found.tiers["host"].used >= 1 and found.tiers["host"].stored == 0
    for _ in range(3):
        assert not now(engine).tiers["host"].is_off
        clock.advance(6.0)
        engine.step()
        if take_snapshot(engine).cache.tiers["host"].is_off:
            break
    found = now(engine)
    assert (found.cached, found.moving) == (3, 0)
    assert found.tiers == {"host": TierSnapshot(8, 0, 0, 0, 3, 3, True)}
