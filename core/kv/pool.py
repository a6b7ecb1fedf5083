"""The block pool: which block is free, who holds it, and when it may be written again."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from jackfield.core.kv.entry import Entry
from jackfield.core.kv.free_blocks import FreeBlocks

FREE = 0


def _nothing_to_reclaim(count: int) -> None:
    raise AssertionError(f"{count} blocks are missing, and nothing is cached")


def _nothing_to_settle() -> None:
    raise AssertionError("blocks were left, and nobody knows what becomes of them")


class Left(NamedTuple):
    """Blocks that have lost their last holder, the last first: those with content, by their
    entries, and those without."""

    entries: list[Entry]
    blocks: list[int]


class BlockPool:
    """Hands out block ids and counts their holders. The planner and the cache are its callers.

    A block is free, or live (one holder or more), or cached (no holder; it holds the content of an
    entry, or is being filled with it). A freed block remembers the last step that may still touch
    it; steps run in order, so a later step may take it at once, while a copy outside the step
    order has to wait for that step.

    num_live: live blocks. num_idle: cached blocks that can be had at any time. reclaim: gives so
    many of them back. num_left: blocks without holder of which it is not settled yet whether they
    are cached or free; `settle` does that.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_live = 0
        self.num_idle = 0
        self.num_left = 0
        self.reclaim: Callable[[int], None] = _nothing_to_reclaim
        self.settle: Callable[[], None] = _nothing_to_settle
        self.entries: list[Entry | None] = [None] * num_blocks
        self._free = FreeBlocks(num_blocks)
        self._holders = [FREE] * num_blocks
        self._last_step = [-1] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that can be had: without content, or with content that nobody uses."""
        return len(self._free) + self.num_idle + self.num_left

    @property
    def num_empty(self) -> int:
        """Blocks without content."""
        return len(self._free)

    @property
    def num_tokens(self) -> int:
        """Positions that the whole pool holds."""
        return self.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold that many positions."""
        return -(-num_tokens // self.block_size)

    def take(self, count: int, after: int | None = None) -> list[int]:
        """`count` blocks, now with one holder each. The caller has checked `num_free`.

        after: the block that comes before them in their sequence.
        """
        taken = self.take_unheld(count, after)
        for block in taken:
            self._holders[block] = 1
        self.num_live += count
        return taken

    def take_unheld(self, count: int, after: int | None = None) -> list[int]:
        """`count` blocks for the cache to fill."""
        assert 0 < count <= self.num_free, f"{count} of {self.num_free} free blocks"
        if count > len(self._free) and self.num_left:
            self.settle()
        missing = count - len(self._free)
        if missing > 0:
            self.reclaim(missing)
        return self._free.take(count, after)

    def share(self, blocks: Iterable[int]) -> None:
        """One more holder for each of these blocks, which are live or cached."""
        holders = self._holders
        for block in blocks:
            count = holders[block]
            if count == FREE:
                there = self.entries[block] is not None
                assert there, f"block {block} is free and cannot be shared"
                self.num_live += 1
            holders[block] = count + 1

    def release(self, blocks: Sequence[int], last_step: int) -> list[Entry]:
        """Like `leave`; blocks without holder and content are free.

        Returns the entries of the others, the last first.
        """
        entries, freed = self.leave(blocks, last_step)
        if freed:
            self._free.put(freed)
        return entries

    def leave(self, blocks: Sequence[int], last_step: int) -> Left:
        """One holder less; `last_step` is the last step in flight that touches them. The caller
        sees to those that have none any more."""
        entries: list[Entry] = []
        freed = []
        holders, last_steps = self._holders, self._last_step
        for block in reversed(blocks):
            count = holders[block] - 1
            assert count >= FREE, f"block {block} was released twice"
            holders[block] = count
            if last_step > last_steps[block]:
                last_steps[block] = last_step
            if count == FREE:
                entry = self.entries[block]
                if entry is None:
                    freed.append(block)
                else:
                    entries.append(entry)
        self.num_live -= len(freed) + len(entries)
        return Left(entries, freed)

    def give(self, blocks: Sequence[int]) -> None:
        """Blocks that the cache had, or that nobody holds any more, are free."""
        for block in blocks:
            assert self._holders[block] == FREE and self.entries[block] is None, f"block {block}"
        self._free.put(blocks)

    def last_step(self, block: int) -> int:
        """The last step that may touch the block on behalf of a former holder; -1 = none."""
        return self._last_step[block]

    def holders(self, block: int) -> int:
        """How many requests hold the block."""
        return self._holders[block]

    def is_empty(self, block: int) -> bool:
        """Whether the block has no content."""
        return block in self._free

    def check(self, tables: Iterable[Sequence[int]], reserved: Iterable[int] = ()) -> None:
        """Compare with the tables of all holders. Raises `AssertionError` naming the block.

        reserved: blocks without holder and entry that a transfer still touches.
        """
        expected = [FREE] * self.num_blocks
        for table in tables:
            for block in table:
                expected[block] += 1
        for block, (seen, counted) in enumerate(zip(expected, self._holders, strict=True)):
            assert seen == counted, f"block {block}: {seen} tables hold it, counted {counted}"
        live = sum(count > FREE for count in expected)
        assert live == self.num_live, f"{live} blocks are live, counted {self.num_live}"
        kept = set(reserved)
        for block in range(self.num_blocks):
            state = [
                block in self._free,
                self._holders[block] > FREE or self.entries[block] is not None,
                block in kept,
            ]
            assert sum(state) == 1, f"block {block} is in {sum(state)} states: {state}"
        free = sum(block in self._free for block in range(self.num_blocks))
        assert free == len(self._free), "the free list has another length than it counts"
