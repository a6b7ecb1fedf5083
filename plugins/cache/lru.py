"""Least recently used: the block whose last use is longest ago goes first."""

from collections.abc import Sequence

from jackfield.core.api import BlockMeta, BlockOrder, EvictionSpace, Evictor, EvictorPlugin


class LruEvictor(Evictor):
    """The key of a block is the number of its last use, counted over all blocks."""

    def __init__(self) -> None:
        super().__init__()
        self._order = BlockOrder()
        self._uses = 0

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        self.touch(blocks, now)

    def touch(self, blocks: Sequence[int], now: float) -> None:
        first, self._uses = self._uses, self._uses + len(blocks)
        self._order.place_all(blocks, range(first, self._uses))

    def update(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        pass

    def evictable(self, blocks: Sequence[int]) -> None:
        self._order.evictable(blocks)

    def busy(self, blocks: Sequence[int]) -> None:
        self._order.busy(blocks)

    def remove(self, blocks: Sequence[int]) -> None:
        self._order.remove(blocks)

    def victims(self, count: int, now: float) -> Sequence[int]:
        return self._order.first(count)


class Lru(EvictorPlugin):
    """Gives up the block whose last use is longest ago. The order of the default stack.

    Guarantee: a block never goes before another one that was used less recently, if both could go.

    Source: Mattson et al., Evaluation Techniques for Storage Hierarchies, IBM Systems Journal,
    1970.
    """

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        return LruEvictor()
