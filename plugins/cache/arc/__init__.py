"""Adaptive replacement: shares the tier between recent and frequent blocks as the load wants it."""

from collections.abc import Sequence

from jackfield.core.api import (
    DEVICE,
    BlockMeta,
    BlockOrder,
    EvictionSpace,
    Evictor,
    EvictorPlugin,
)
from jackfield.plugins.cache.arc.ghosts import Ghosts


class ArcEvictor(Evictor):
    """T1 holds blocks that were used once, T2 those used again."""

    def __init__(self, space: EvictionSpace) -> None:
        super().__init__()
        self._filled_here = space.tier == DEVICE
        self._t1, self._t2 = BlockOrder(), BlockOrder()
        self._ghosts = Ghosts(space.capacity)
        self._keys: dict[int, bytes] = {}
        self._fresh: set[int] = set()
        self._uses = 0

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        for block, meta in zip(blocks, metas, strict=True):
            self._keys[block] = meta.key
            self._place(block, self._t2 if self._ghosts.returns(meta.key) else self._t1)
            self._ghosts.trim(len(self._t1), len(self._keys))
        if self._filled_here:
            self._fresh.update(blocks)

    def touch(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            if block in self._fresh:
                self._fresh.remove(block)
                self._place(block, self._t1 if block in self._t1 else self._t2)
            else:
                self._promote(block)

    def update(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        pass

    def evictable(self, blocks: Sequence[int]) -> None:
        self._t1.evictable(blocks)
        self._t2.evictable(blocks)

    def busy(self, blocks: Sequence[int]) -> None:
        self._t1.busy(blocks)
        self._t2.busy(blocks)

    def remove(self, blocks: Sequence[int]) -> None:
        self._fresh.difference_update(blocks)
        for block in blocks:
            self._ghosts.add(self._keys.pop(block), was_used_once=block in self._t1)
        self._t1.remove(blocks)
        self._t2.remove(blocks)
        self._ghosts.trim(len(self._t1), len(self._keys))

    def victims(self, count: int, now: float) -> Sequence[int]:
        once, again = self._t1.first(count), self._t2.first(count)
        over = len(self._t1) - self._ghosts.target
        chosen, from_once = list[int](), 0
        while len(chosen) < count and len(chosen) < len(once) + len(again):
            from_again = len(chosen) - from_once
            if from_once < len(once) and (from_once < over or from_again == len(again)):
                chosen.append(once[from_once])
                from_once += 1
            else:
                chosen.append(again[from_again])
        return chosen

    def _promote(self, block: int) -> None:
        self._place(block, self._t2)
        if block in self._t1:
            if self._t1.is_evictable(block):
                self._t2.evictable((block,))
            self._t1.remove((block,))

    def _place(self, block: int, order: BlockOrder) -> None:
        self._uses += 1
        order.place(block, self._uses)


class Arc(EvictorPlugin):
    """Gives up blocks that were used once, or those used again, whichever is over its share.

    The share follows the load: content that comes back after it was given up, known by its key,
    says which of the two should have been larger. Differences from the paper: who goes is chosen
    before it is known who comes, so a target never moves for the block that room is made for; only
    the blocks of a list that can be given up count when one is chosen, and when there are none the
    other list gives one, while all count for the list's length; and on the device the first `touch`
    of a block is no second use, because whoever filled it lets it go.

    Guarantee: remembers no more keys of what is gone than the tier holds blocks, twice over.

    Source: Megiddo and Modha, ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST 2003.
    """

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        return ArcEvictor(space)
