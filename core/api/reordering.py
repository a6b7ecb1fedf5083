"""A wrapper that moves some blocks to places of their own, and leaves the others alone."""

from collections.abc import Sequence
from typing import Any

from jackfield.core.api.block_order import BlockOrder
from jackfield.core.api.eviction import BlockMeta, Evictor


class Reordering(Evictor):
    """Base of a wrapper that gives a place of its own to some blocks, and leaves the others alone.

    A subclass says with `key` which blocks these are and in which order they go, and with
    `goes_early` which of them go before all others; the rest of them goes after. Equal keys go in
    the order of last use. The inner evictor takes them for busy. While no block has a key the
    order is exactly that of the inner evictor.
    """

    def __init__(self, inner: Evictor) -> None:
        super().__init__(inner)
        self._own = BlockOrder()
        self._evictable: set[int] = set()
        self._uses = 0

    def key(self, meta: BlockMeta) -> Any:
        """Where the block goes among those with a place of their own: smaller first.

        None if it has no such place. Called once per `insert` and `update` of a block.
        """
        raise NotImplementedError

    def goes_early(self, key: Any, now: float) -> bool:
        """Whether blocks with this key go before those without one; then smaller keys do too."""
        raise NotImplementedError

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        self.inner.insert(blocks, metas, now)
        for block, meta in zip(blocks, metas, strict=True):
            self._set(block, self.key(meta))

    def touch(self, blocks: Sequence[int], now: float) -> None:
        self.inner.touch(blocks, now)
        if self._own:
            for block in blocks:
                if block in self._own:
                    self._set(block, self._own.key(block)[0])

    def update(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        self.inner.update(blocks, metas, now)
        for block, meta in zip(blocks, metas, strict=True):
            key = self.key(meta)
            if key is not None:
                self._keep(block, key)
            elif block in self._own:
                self._leave(block)

    def evictable(self, blocks: Sequence[int]) -> None:
        self._evictable.update(blocks)
        self._own.evictable(blocks)
        others = [one for one in blocks if one not in self._own] if self._own else blocks
        self.inner.evictable(others)

    def busy(self, blocks: Sequence[int]) -> None:
        self._evictable.difference_update(blocks)
        self._own.busy(blocks)
        self.inner.busy(blocks)

    def remove(self, blocks: Sequence[int]) -> None:
        self._evictable.difference_update(blocks)
        self._own.remove(blocks)
        self.inner.remove(blocks)

    def victims(self, count: int, now: float) -> Sequence[int]:
        own = self._own.first(count)
        early = 0
        while early < len(own) and self.goes_early(self._own.key(own[early])[0], now):
            early += 1
        chosen = own[:early]
        if early < count:
            chosen += self.inner.victims(count - early, now)
        return chosen + own[early : early + count - len(chosen)]

    def _set(self, block: int, key: Any) -> None:
        if key is not None:
            self._uses += 1
            self._own.place(block, (key, self._uses))

    def _keep(self, block: int, key: Any) -> None:
        if block in self._own:
            # What is kept has changed, not when it was used.
            self._own.place(block, (key, self._own.key(block)[1]))
            return
        self._set(block, key)
        if block in self._evictable:
            self.inner.busy((block,))
            self._own.evictable((block,))

    def _leave(self, block: int) -> None:
        self._own.remove((block,))
        if block in self._evictable:
            self.inner.evictable((block,))
