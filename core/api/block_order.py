"""What evictors are made of: blocks in an order, of which some can be given up."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any

STALE_FACTOR = 4
SLACK = 64


class BlockOrder:
    """Blocks, each with a key, of which some may be given up; finds those with the smallest keys.

    Keys of one order are comparable with each other; equal ones go by block id. A method passes
    over blocks that are not in the order, so that an evictor with several orders can tell all of
    them. Costs O(log n) amortised per block. It never holds more than six entries per block, and
    some slack.
    """

    __slots__ = ("_heap", "_keys", "_ready")

    def __init__(self) -> None:
        self._keys: dict[int, Any] = {}
        self._ready: dict[int, Any] = {}
        self._heap: list[tuple[Any, int]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, block: int) -> bool:
        return block in self._keys

    def key(self, block: int) -> Any:
        """The key of a block that is in the order."""
        return self._keys[block]

    def is_evictable(self, block: int) -> bool:
        """Whether the block is in the order and may be given up."""
        return block in self._ready

    def place(self, block: int, key: Any) -> None:
        """The block has this key from now on. If it is new, it may not be given up at first."""
        self._keys[block] = key
        if block in self._ready:
            self._ready[block] = key
            heappush(self._heap, (key, block))
            self._trim()

    def place_all(self, blocks: Iterable[int], keys: Iterable[Any]) -> None:
        """Like `place` for each block and its key."""
        known, ready, heap = self._keys, self._ready, self._heap
        blocks = tuple(blocks)
        known.update(zip(blocks, keys, strict=False))
        if ready.keys().isdisjoint(blocks):  # most that are used are held, and so not ready
            return
        for block in blocks:
            if block in ready:
                key = known[block]
                if ready[block] != key:
                    ready[block] = key
                    heappush(heap, (key, block))
        self._trim()

    def evictable(self, blocks: Iterable[int]) -> None:
        """These blocks may be given up, in the order of the keys that they have."""
        known, ready, heap = self._keys, self._ready, self._heap
        for block in blocks:
            key = known.get(block)
            if key is not None and block not in ready:
                ready[block] = key
                heappush(heap, (key, block))
        self._trim()

    def busy(self, blocks: Iterable[int]) -> None:
        """These blocks may not be given up any more; they keep their keys."""
        for block in blocks:
            self._ready.pop(block, None)
        self._trim()

    def remove(self, blocks: Iterable[int]) -> None:
        """These blocks are forgotten."""
        for block in blocks:
            self._keys.pop(block, None)
            self._ready.pop(block, None)
        self._trim()

    def first(self, count: int) -> list[int]:
        """Those `count` blocks with the smallest keys that may be given up, or all of them."""
        heap, ready = self._heap, self._ready
        found: list[tuple[Any, int]] = []
        while heap and len(found) < count:
            entry = heappop(heap)
            # A block that was busy for a while is there twice with the same key, side by side.
            if ready.get(entry[1]) == entry[0] and (not found or found[-1] != entry):
                found.append(entry)
        for entry in found:
            heappush(heap, entry)
        return [block for _, block in found]

    def _trim(self) -> None:
        if len(self._heap) > STALE_FACTOR * len(self._ready) + SLACK:
            self._heap = [(key, block) for block, key in self._ready.items()]
            heapify(self._heap)
