"""What sets each policy apart, on examples that can be followed by hand."""

from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from jackfield.core.api import DEVICE, BlockMeta, EvictionSpace, Evictor
from jackfield.core.testing.eviction_traces import FlatCache, content
from jackfield.plugins.cache.arc import Arc, ArcEvictor
from jackfield.plugins.cache.lfu import Lfu
from jackfield.plugins.cache.lru import Lru
from jackfield.plugins.cache.slru import Slru, SlruConfig

HOST = "host"


def insert(evictor: Evictor, *blocks: int) -> None:
    """Contents of the same numbers, that can be given up."""
    evictor.insert(blocks, [BlockMeta(content(block), 0) for block in blocks], 0.0)
    evictor.evictable(blocks)


def order(evictor: Evictor) -> list[int]:
    return list(evictor.victims(100, 0.0))


def evict(evictor: Evictor, count: int) -> Sequence[int]:
    gone = list(evictor.victims(count, 0.0))
    evictor.remove(gone)
    return gone


def arc(capacity: int, tier: str = HOST) -> ArcEvictor:
    evictor = Arc(Arc.Config()).evictor(EvictionSpace(tier, capacity), None)
    assert isinstance(evictor, ArcEvictor)
    return evictor


def test_lru_forgets_nothing_of_a_block_that_is_busy_for_a_while() -> None:
    evictor = Lru(Lru.Config()).evictor(EvictionSpace(DEVICE, 4), None)
    insert(evictor, 0, 1, 2)
    evictor.busy([0, 1])
    evictor.touch([0], 0.0)
    assert order(evictor) == [2]
    evictor.evictable([1, 0])
    assert order(evictor) == [1, 2, 0]


def test_lru_does_not_count_it_as_a_use_that_a_block_becomes_a_leaf() -> None:
    evictor = Lru(Lru.Config()).evictor(EvictionSpace(DEVICE, 4), None)
    evictor.insert([0, 1, 2], [BlockMeta(content(block), 0) for block in range(3)], 0.0)
    evictor.touch([1, 0, 2], 0.0)
    evictor.evictable([2, 1])
    evictor.remove([1])
    evictor.evictable([0])
    assert order(evictor) == [0, 2]


def test_lfu_gives_up_who_was_used_least_then_least_recently() -> None:
    evictor = Lfu(Lfu.Config()).evictor(EvictionSpace(HOST, 4), None)
    insert(evictor, 0, 1, 2, 3)
    evictor.touch([0, 0, 1, 3], 0.0)
    assert order(evictor) == [2, 1, 3, 0]


def test_lfu_lets_old_favourites_go() -> None:
    evictor = Lfu(Lfu.Config()).evictor(EvictionSpace(HOST, 3), None)
    insert(evictor, 0, 1, 2)
    evictor.touch([0] * 5, 0.0)
    gone: list[int] = []
    for block in range(3, 20):
        gone += evict(evictor, 1)
        insert(evictor, block)
    # It stood at 6, and each round of two newcomers adds one to the age.
    assert gone.index(0) == 10
    assert gone == [*range(1, 11), 0, *range(11, 17)]


def test_lfu_does_not_age_by_a_block_that_leaves_out_of_turn() -> None:
    evictor = Lfu(Lfu.Config()).evictor(EvictionSpace(HOST, 4), None)
    insert(evictor, 0, 1, 2)
    evictor.touch([0] * 9 + [1], 0.0)
    evictor.remove([0])
    insert(evictor, 3)
    assert order(evictor) == [2, 3, 1]


def test_slru_protects_what_is_used_again() -> None:
    evictor = Slru(SlruConfig(protected=0.5)).evictor(EvictionSpace(HOST, 4), None)
    insert(evictor, 0, 1, 2, 3)
    evictor.touch([0, 1], 0.0)
    assert order(evictor) == [2, 3, 0, 1]
    evictor.touch([2], 0.0)
    assert order(evictor) == [3, 0, 1, 2]
    evictor.touch([1, 3], 0.0)
    assert order(evictor) == [0, 2, 1, 3]


@pytest.mark.parametrize("share", [-0.1, 1.1, "half"])
def test_slru_protects_a_share(share: object) -> None:
    with pytest.raises(ValidationError, match="protected"):
        SlruConfig.model_validate({"protected": share})


@pytest.mark.parametrize("plugin", [Slru, Arc], ids=["slru", "arc"])
@pytest.mark.parametrize(("tier", "first"), [(DEVICE, 0), (HOST, 1)])
def test_who_filled_a_block_on_the_device_does_not_use_it_again(
    plugin: type[Slru] | type[Arc], tier: str, first: int
) -> None:
    evictor = plugin(plugin.Config()).evictor(EvictionSpace(tier, 4), None)
    insert(evictor, 0, 1)
    evictor.touch([1], 0.0)
    evictor.touch([0], 0.0)
    assert order(evictor) == [1, 0]
    insert(evictor, 2)
    # On the device 2 is the last of those that were used once; elsewhere it is the only one.
    assert order(evictor)[0] == (1 if tier == DEVICE else 2)
    evictor.touch([1], 0.0)
    assert order(evictor)[-1] == 1


def test_arc_keeps_what_was_used_again_from_a_sweep() -> None:
    evictor = arc(4)
    insert(evictor, 0, 1)
    evictor.touch([0, 1], 0.0)
    insert(evictor, 2, 3)
    for block in range(4, 12):
        assert evict(evictor, 1) == [block - 2]
        insert(evictor, block)


def test_arc_wants_more_of_what_comes_back_too_late() -> None:
    evictor = arc(2)
    insert(evictor, 0, 1)
    evictor.touch([1], 0.0)
    assert evict(evictor, 1) == [0]
    evictor.insert([10], [BlockMeta(content(0), 0)], 0.0)
    evictor.evictable([10])
    assert evict(evictor, 1) == [1], "the content of 0 came back, and is used again"
    insert(evictor, 2)
    assert order(evictor) == [10, 2], "those used once may be one"
    assert evict(evictor, 1) == [10]
    evictor.insert([11], [BlockMeta(content(1), 0)], 0.0)
    evictor.evictable([11])
    assert order(evictor) == [2, 11], "those used again were given up too early"


def test_arc_takes_from_the_other_list_when_a_list_has_no_leaf() -> None:
    evictor = arc(4)
    insert(evictor, 0, 1, 2, 3)
    evictor.touch([2, 3], 0.0)
    evictor.busy([0, 1])
    assert order(evictor) == [2, 3]
    evictor.evictable([0])
    evictor.busy([2, 3])
    assert order(evictor) == [0]


def test_arc_takes_a_content_for_one_although_it_is_there_twice() -> None:
    evictor = arc(3)
    for block in range(3):
        evictor.insert([block], [BlockMeta(content(7), 0)], 0.0)
    evictor.evictable([0, 1, 2])
    evictor.touch([1], 0.0)
    assert evict(evictor, 3) == [0, 2, 1]
    insert(evictor, 7)
    evictor.insert([9], [BlockMeta(content(7), 0)], 0.0)
    evictor.evictable([9])
    insert(evictor, 10)
    assert order(evictor) == [9, 10, 7], "9 is new: its content did not go a second time"


def test_arc_remembers_a_content_from_the_last_time_that_it_went() -> None:
    evictor = arc(3)
    evictor.insert([0, 1, 2], [BlockMeta(content(number), 0) for number in (7, 8, 7)], 0.0)
    evictor.remove([0])
    evictor.remove([1])
    evictor.remove([2])
    insert(evictor, 10, 11)
    evictor.insert([12], [BlockMeta(content(7), 0)], 0.0)
    evictor.evictable([12])
    assert order(evictor) == [10, 12, 11], "8 had to be forgotten, 7 comes back"


def test_a_cache_without_chains_counts_its_hits() -> None:
    cache = FlatCache(lambda space: Lru(Lru.Config()).evictor(space, None), 2)
    gone = [cache.request(content(number)) for number in (1, 2, 1, 3, 1, 2)]
    assert gone == [None, None, None, content(2), None, content(3)]
    assert cache.hits == 2
