"""The order of blocks against a sorted list, its bound, and what it costs to ask."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jackfield.core.api import BlockOrder
from jackfield.core.api.block_order import SLACK, STALE_FACTOR
from jackfield.core.testing.examples import settings_for

CALLS = ("place", "place", "evictable", "evictable", "busy", "remove")
calls = st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 5), st.integers(0, 3)))


class Counted:
    """A key that counts how often it is compared."""

    compared = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __lt__(self, other: "Counted") -> bool:
        Counted.compared += 1
        return self.value < other.value


@given(calls)
@settings_for(300)
def test_first_are_those_with_the_smallest_keys(calls: list[tuple[str, int, int]]) -> None:
    order = BlockOrder()
    keys: dict[int, int] = {}
    free: set[int] = set()
    for name, block, key in calls:
        if name == "place":
            order.place(block, key)
            keys[block] = key
        else:
            getattr(order, name)([block])
        if name == "remove":
            keys.pop(block, None)
        if name == "evictable" and block in keys:
            free.add(block)
        elif name in ("busy", "remove"):
            free.discard(block)
        right = sorted(free, key=lambda one: (keys[one], one))
        for count in range(4):
            assert order.first(count) == right[:count]
        assert len(order) == len(keys) and all(one in order for one in keys)
        assert [one for one in range(6) if order.is_evictable(one)] == sorted(free)


def test_placing_many_is_placing_each() -> None:
    order = BlockOrder()
    order.place_all([1, 2, 3], [30, 20, 10])
    order.evictable([1, 2])
    order.place_all([2, 3], [40, 50])
    assert order.first(9) == [1, 2]
    assert [order.key(block) for block in (1, 2, 3)] == [30, 40, 50]


def test_stale_entries_are_bounded() -> None:
    order, random = BlockOrder(), Random(0)
    free: set[int] = set()
    for _ in range(20_000):
        block = random.randrange(50)
        order.place(block, random.random())
        if random.random() < 0.5:
            order.evictable([block])
            free.add(block)
        elif random.random() < 0.5:
            order.busy([block])
            free.discard(block)
        assert len(order._heap) <= STALE_FACTOR * len(free) + SLACK


def evict_one(order: BlockOrder, blocks: int) -> Any:
    (block,) = order.first(1)
    order.remove([block])
    order.evictable([(block + 1) % blocks])
    return block


def test_asking_costs_little_however_many_blocks_there_are() -> None:
    """No scan: with so many blocks, and a tenth of them leaves, each eviction compares few."""
    order, blocks = BlockOrder(), 20_000
    keys = list(range(blocks))
    Random(0).shuffle(keys)
    order.place_all(range(blocks), map(Counted, keys))
    order.evictable(range(0, blocks, 10))
    Counted.compared = 0
    for _ in range(1000):
        evict_one(order, blocks)
    assert Counted.compared < 1000 * 100
