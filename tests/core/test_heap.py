"""The lazy heap against a sorted list, and its bound on stale entries."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from jackfield.core.engine.heap import SLACK, STALE_FACTOR, LazyHeap

operations = st.lists(
    st.tuples(st.sampled_from(["push", "remove", "peek"]), st.integers(0, 5), st.integers(0, 3)),
    max_size=80,
)


def bound(heap: LazyHeap[int]) -> int:
    return STALE_FACTOR * len(heap) + SLACK


@given(operations)
def test_first_is_the_smallest_then_the_earliest(operations: list[tuple[str, int, int]]) -> None:
    heap: LazyHeap[int] = LazyHeap()
    model: dict[int, tuple[int, int]] = {}
    for time, (name, item, key) in enumerate(operations):
        if name == "push":
            heap.push(item, key)
            model[item] = (key, time)
        elif name == "remove":
            heap.remove(item)
            model.pop(item, None)
        first = min(model, key=lambda one: model[one]) if model else None
        assert heap.peek() == first
        assert (item in heap) == (item in model)
        assert sorted(heap.items()) == sorted(model) and len(heap) == len(model)
        if first is not None:
            assert heap.first_key() == model[first][0]


def test_stale_entries_are_bounded_when_items_move() -> None:
    heap: LazyHeap[int] = LazyHeap()
    random = Random(0)
    for _ in range(10_000):
        heap.push(random.randrange(100), random.random())
        assert heap.num_entries <= bound(heap)


def test_stale_entries_are_bounded_when_items_leave() -> None:
    heap: LazyHeap[int] = LazyHeap()
    for item in range(10_000):
        heap.push(item, item)
    for item in range(9_999, 0, -1):
        heap.remove(item)
        assert heap.num_entries <= bound(heap)
    assert heap.peek() == 0
