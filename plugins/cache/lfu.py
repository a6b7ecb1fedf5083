"""Least frequently used, with dynamic ageing: old favourites leave when nobody asks any more."""

from collections.abc import Sequence

from jackfield.core.api import BlockMeta, BlockOrder, EvictionSpace, Evictor, EvictorPlugin


class LfuEvictor(Evictor):
    """The key of a block is the number of its uses plus the age of the cache at the last of them.

    The age is the key of the block that was evicted last.
    """

    def __init__(self) -> None:
        super().__init__()
        self._order = BlockOrder()
        self._counts: dict[int, int] = {}
        self._uses = 0
        self._age = 0

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        self.touch(blocks, now)

    def touch(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            self._uses += 1
            count = self._counts[block] = self._counts.get(block, 0) + 1
            self._order.place(block, (count + self._age, self._uses))

    def update(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        pass

    def evictable(self, blocks: Sequence[int]) -> None:
        self._order.evictable(blocks)

    def busy(self, blocks: Sequence[int]) -> None:
        self._order.busy(blocks)

    def remove(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            # Who leaves out of turn was dropped, not evicted, and ages nobody.
            if self._order.first(1) == [block]:
                self._age = max(self._age, self._order.key(block)[0])
            self._order.remove((block,))
            del self._counts[block]

    def victims(self, count: int, now: float) -> Sequence[int]:
        return self._order.first(count)


class Lfu(EvictorPlugin):
    """Gives up the block that was used least often; of those the one used least recently.

    Uses count from the age of the cache on, which is what the block that was evicted last had
    reached. So a block that was used n times, and then no more, goes before all that is new as soon
    as the age has grown by n. Every `touch` is a use: a request that finds a block adds two.

    Guarantee: of two blocks whose last uses saw the same age, who was used more often goes later.

    Source: Arlitt et al., Evaluating Content Management Techniques for Web Proxy Caches, ACM
    SIGMETRICS Performance Evaluation Review, 2000 (LFU with dynamic ageing).
    """

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        return LfuEvictor()
