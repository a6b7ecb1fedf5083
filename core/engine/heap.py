"""A priority queue with removal: stale entries stay in the heap until it is worth a rebuild."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar

T = TypeVar("T")
SLACK = 64
STALE_FACTOR = 4


class LazyHeap(Generic[T]):
    """Items with comparable keys, smallest first; equal keys in order of insertion.

    Pushing an item again moves it. The heap never holds more than four times its live entries
    (and some slack).
    """

    __slots__ = ("_counter", "_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, T]] = []
        self._live: dict[T, int] = {}
        self._counter = count()

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, item: T) -> bool:
        return item in self._live

    def push(self, item: T, key: Any) -> None:
        """Insert the item, or give it another key."""
        ticket = next(self._counter)
        self._live[item] = ticket
        heappush(self._heap, (key, ticket, item))
        self._trim()

    def push_all(self, items: Sequence[tuple[T, Any]]) -> None:
        """Like `push` for each pair of item and key, in one go over the heap."""
        for item, key in items:
            ticket = next(self._counter)
            self._live[item] = ticket
            self._heap.append((key, ticket, item))
        self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
        heapify(self._heap)

    def remove(self, item: T) -> None:
        """Forget the item; nothing happens if it is not there."""
        self._live.pop(item, None)
        self._trim()

    def peek(self) -> T | None:
        """The first item, or None when empty."""
        heap = self._heap
        while heap:
            _, ticket, item = heap[0]
            if self._live.get(item) == ticket:
                return item
            heappop(heap)
        return None

    def first_key(self) -> Any:
        """The key of the first item. Only when not empty."""
        self.peek()
        return self._heap[0][0]

    def first(self, count: int) -> list[T]:
        """The first `count` items in order, or all. Costs O((count + stale entries) * log)."""
        self.peek()
        heap, found = self._heap, list[T]()
        front = [(heap[0], 0)] if heap else []
        while front and len(found) < count:
            (_, ticket, item), index = heappop(front)
            if self._live.get(item) == ticket:
                found.append(item)
            for below in (2 * index + 1, 2 * index + 2):
                if below < len(heap):
                    heappush(front, (heap[below], below))
        return found

    @property
    def num_entries(self) -> int:
        """Live and stale entries, for checking the bound."""
        return len(self._heap)

    def items(self) -> list[T]:
        """All items, in no order."""
        return list(self._live)

    def _trim(self) -> None:
        if len(self._heap) <= STALE_FACTOR * len(self._live) + SLACK:
            return
        self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
        heapify(self._heap)
