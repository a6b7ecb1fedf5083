"""ttl and pin: who is given a place of its own, and where it is."""

from collections.abc import Sequence

import pytest

from jackfield.core.api import BlockMeta, EvictionSpace, Evictor, EvictorPlugin
from jackfield.core.testing.eviction_models import ListLru
from jackfield.plugins.cache.lru import Lru
from jackfield.plugins.cache.pin import Pin
from jackfield.plugins.cache.ttl import Ttl

SPACE = EvictionSpace("device", 16)
PLAIN = BlockMeta(bytes(16), 0)


def lives(expires: float | None) -> BlockMeta:
    return PLAIN._replace(expires=expires)


def ranks(priority: int = 0, pinned: bool = False) -> BlockMeta:
    return PLAIN._replace(priority=priority, pinned=pinned)


def around(plugin: type[EvictorPlugin], metas: Sequence[BlockMeta]) -> Evictor:
    """An evictor with blocks 0, 1, ... that were used in this order and can all be given up."""
    evictor = plugin(plugin.Config()).evictor(SPACE, ListLru())
    blocks = range(len(metas))
    evictor.insert(blocks, metas, 0.0)
    evictor.evictable(blocks)
    return evictor


def order(evictor: Evictor, now: float = 10.0) -> list[int]:
    """All that can be given up; a few of them are the same."""
    everything = list(evictor.victims(100, now))
    for count in range(len(everything) + 1):
        assert list(evictor.victims(count, now)) == everything[:count]
    return everything


def test_expired_blocks_go_first_and_those_that_live_last() -> None:
    metas = [lives(30.0), lives(None), lives(9.0), lives(20.0), lives(None), lives(4.0)]
    assert order(around(Ttl, metas)) == [5, 2, 1, 4, 3, 0]


def test_a_block_expires_at_the_moment_that_is_named() -> None:
    evictor = around(Ttl, [lives(None), lives(10.0)])
    assert order(evictor, 9.999) == [0, 1]
    assert order(evictor, 10.0) == [1, 0]


def test_equal_expiries_go_by_last_use() -> None:
    evictor = around(Ttl, [lives(20.0), lives(20.0), lives(20.0)])
    evictor.touch([0], 5.0)
    assert order(evictor) == [1, 2, 0]


def test_an_endless_life_is_kept_longest() -> None:
    assert order(around(Ttl, [lives(float("inf")), lives(None), lives(1e9)])) == [1, 2, 0]


def test_an_expiry_can_be_given_moved_and_taken_back() -> None:
    evictor = around(Ttl, [PLAIN] * 4)
    evictor.update([0, 1], [lives(30.0), lives(20.0)], 0.0)
    assert order(evictor) == [2, 3, 1, 0]
    evictor.update([0], [lives(5.0)], 0.0)
    assert order(evictor) == [0, 2, 3, 1]
    evictor.update([0, 1], [lives(None)] * 2, 0.0)
    assert order(evictor) == [0, 1, 2, 3]


def test_pins_go_last_and_priorities_in_their_order() -> None:
    metas = [
        ranks(pinned=True), ranks(2), ranks(), ranks(-1), ranks(1, pinned=True), ranks(1), ranks(),
        ranks(-5, pinned=True), ranks(-7),
    ]  # fmt: skip
    assert order(around(Pin, metas)) == [8, 3, 2, 6, 5, 1, 7, 0, 4]


def test_equal_pins_go_by_last_use() -> None:
    evictor = around(Pin, [ranks(pinned=True)] * 3)
    evictor.touch([2, 0], 5.0)
    assert order(evictor) == [1, 2, 0]


def test_an_update_is_no_use() -> None:
    evictor = around(Pin, [ranks(pinned=True), ranks(pinned=True), ranks(1)])
    evictor.update([0], [ranks(pinned=True)], 5.0)
    assert order(evictor) == [2, 0, 1]


@pytest.mark.parametrize(("plugin", "kept"), [(Pin, ranks(pinned=True)), (Ttl, lives(99.0))])
def test_what_changes_while_a_block_is_busy_holds_when_it_is_free(
    plugin: type[EvictorPlugin], kept: BlockMeta
) -> None:
    evictor = around(plugin, [PLAIN, kept, PLAIN])
    evictor.busy([0, 1])
    evictor.update([0, 1], [kept, PLAIN], 1.0)
    assert order(evictor) == [2]
    evictor.evictable([0, 1])
    assert order(evictor) == [1, 2, 0]


@pytest.mark.parametrize(("plugin", "kept"), [(Pin, ranks(pinned=True)), (Ttl, lives(99.0))])
def test_a_block_that_comes_back_is_new(plugin: type[EvictorPlugin], kept: BlockMeta) -> None:
    evictor = around(plugin, [kept, PLAIN])
    evictor.remove([0])
    evictor.insert([0], [PLAIN], 1.0)
    assert order(evictor) == [1]
    evictor.evictable([0])
    assert order(evictor) == [1, 0]


def test_the_default_stack() -> None:
    """A pin beats an expiry, whatever stands inside it."""
    inner = Ttl(Ttl.Config()).evictor(SPACE, Lru(Lru.Config()).evictor(SPACE, None))
    evictor = Pin(Pin.Config()).evictor(SPACE, inner)
    metas = [ranks(pinned=True)._replace(expires=1.0), lives(50.0), PLAIN, lives(5.0), PLAIN]
    evictor.insert(range(5), metas, 0.0)
    evictor.evictable(range(5))
    evictor.touch([2], 1.0)
    assert order(evictor) == [3, 4, 2, 1, 0]


@pytest.mark.parametrize("plugin", [Pin, Ttl])
def test_a_wrapper_needs_somebody_to_wrap(plugin: type[EvictorPlugin]) -> None:
    with pytest.raises(AssertionError, match="stands before another evictor"):
        plugin(plugin.Config()).evictor(SPACE, None)
