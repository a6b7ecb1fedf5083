"""Segmented LRU: blocks that were used again are protected from those that were used once."""

from collections import OrderedDict
from collections.abc import Sequence

from pydantic import Field

from jackfield.core.api import (
    DEVICE,
    BlockMeta,
    BlockOrder,
    EvictionSpace,
    Evictor,
    EvictorPlugin,
    PolicyConfig,
)

PROBATION, PROTECTED = 0, 1


class SlruConfig(PolicyConfig):
    """protected: share of the tier's blocks that the protected segment holds at most."""

    protected: float = Field(0.8, ge=0, le=1)


class SlruEvictor(Evictor):
    """The key of a block is its segment and the number of its last use."""

    def __init__(self, limit: int, tier: str) -> None:
        super().__init__()
        self._limit = limit
        self._filled_here = tier == DEVICE
        self._order = BlockOrder()
        self._fresh: set[int] = set()
        self._protected: OrderedDict[int, None] = OrderedDict()
        self._uses = 0

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        if self._filled_here:
            self._fresh.update(blocks)
        for block in blocks:
            self._place(block, PROBATION)

    def touch(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            if block in self._fresh:
                self._fresh.remove(block)
                self._place(block, PROBATION)
            else:
                self._protect(block)

    def update(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        pass

    def evictable(self, blocks: Sequence[int]) -> None:
        self._order.evictable(blocks)

    def busy(self, blocks: Sequence[int]) -> None:
        self._order.busy(blocks)

    def remove(self, blocks: Sequence[int]) -> None:
        self._fresh.difference_update(blocks)
        self._order.remove(blocks)
        for block in blocks:
            self._protected.pop(block, None)

    def victims(self, count: int, now: float) -> Sequence[int]:
        return self._order.first(count)

    def _protect(self, block: int) -> None:
        self._place(block, PROTECTED)
        self._protected[block] = None
        self._protected.move_to_end(block)
        if len(self._protected) > self._limit:
            demoted, _ = self._protected.popitem(last=False)
            self._place(demoted, PROBATION)

    def _place(self, block: int, segment: int) -> None:
        self._uses += 1
        self._order.place(block, (segment, self._uses))


class Slru(EvictorPlugin):
    """Two segments, each in the order of last use; the probation segment is given up first.

    A block enters on probation and is protected when it is used again. On the device the first
    `touch` does not count for that: whoever filled the block lets it go. When the protected segment
    is full, its least recently used block goes back on probation, as if it had been used just now.

    Guarantee: a block that was used once never outlives a protected one, if both could go.

    Source: Karedla, Love and Wherry, Caching Strategies to Improve Disk System Performance, IEEE
    Computer, 1994.
    """

    Config = SlruConfig

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        return SlruEvictor(int(space.capacity * self.config.protected), space.tier)
