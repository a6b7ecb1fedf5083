"""The block pool: which block is free, who holds it, and when it may be written again."""

from collections.abc import Iterable, Sequence

FREE = 0


class BlockPool:
    """Hands out block ids and counts their holders. The planner is its only caller.

    A block is free (no holder) or live (one holder or more). A freed block remembers the last
    step that may still touch it; steps run in order, so a later step may take it at once, while
    a copy outside the step order has to wait for that step.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, -1, -1))
        self._holders = [FREE] * num_blocks
        self._last_step = [-1] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks without a holder."""
        return len(self._free)

    @property
    def num_tokens(self) -> int:
        """Positions that the whole pool holds."""
        return self.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold that many positions."""
        return -(-num_tokens // self.block_size)

    def take(self, count: int) -> list[int]:
        """`count` free blocks, now with one holder each. The caller has checked `num_free`."""
        assert 0 < count <= len(self._free), f"{count} of {len(self._free)} free blocks"
        taken = self._free[-count:]
        taken.reverse()
        del self._free[-count:]
        for block in taken:
            self._holders[block] = 1
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """One more holder for each of these live blocks."""
        for block in blocks:
            assert self._holders[block] > FREE, f"block {block} is free and cannot be shared"
            self._holders[block] += 1

    def release(self, blocks: Sequence[int], last_step: int) -> None:
        """One holder less; `last_step` is the last step in flight that touches them."""
        for block in reversed(blocks):
            assert self._holders[block] > FREE, f"block {block} was released twice"
            self._holders[block] -= 1
            self._last_step[block] = max(self._last_step[block], last_step)
            if self._holders[block] == FREE:
                self._free.append(block)

    def last_step(self, block: int) -> int:
        """The last step that may touch the block on behalf of a former holder; -1 = none."""
        return self._last_step[block]

    def holders(self, block: int) -> int:
        """How many requests hold the block."""
        return self._holders[block]

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Compare with the tables of all holders. Raises `AssertionError` naming the block."""
        expected = [FREE] * self.num_blocks
        for table in tables:
            for block in table:
                expected[block] += 1
        for block, (seen, counted) in enumerate(zip(expected, self._holders, strict=True)):
            assert seen == counted, f"block {block}: {seen} tables hold it, counted {counted}"
        assert len(set(self._free)) == len(self._free), "a block is free twice"
        assert all(self._holders[block] == FREE for block in self._free), "a free block is held"
        live = sum(count > FREE for count in self._holders)
        assert live + len(self._free) == self.num_blocks, "a block is neither free nor live"
