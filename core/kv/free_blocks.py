"""The free list of the block pool: it hands out consecutive runs where it can."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

TAKEN, FREE = 0, 1
SPARE_RUNS = 64
"""Stale runs that the index keeps beside the true ones before it is made anew."""


class FreeBlocks:
    """Free block ids, as a map of one byte per block and a heap of runs by length.

    A sequence that grows goes on where it ended; a new one starts in the middle of the longest
    run, so that it and the sequence before it both have room (as bisection spreads them, k
    sequences on an empty pool have about 1/k of it each). The heap is lazy: growing leaves it
    alone, and a run that has changed is cut into what is left of it when it comes up.
    """

    def __init__(self, num_blocks: int) -> None:
        self._count = num_blocks
        # The byte behind the last block ends every search.
        self._map = bytearray([FREE]) * num_blocks + bytearray([TAKEN])
        self._runs: list[tuple[int, int]] = []
        self._known: set[tuple[int, int]] = set()
        self._room = SPARE_RUNS
        self._rebuild()

    def __len__(self) -> int:
        return self._count

    def __contains__(self, block: int) -> bool:
        return 0 <= block < len(self._map) and self._map[block] == FREE

    def take(self, count: int, after: int | None = None) -> list[int]:
        """`count` blocks in the order of their use; the caller has checked `len`.

        after: the last block of the sequence that grows; None = it has none.
        """
        assert 0 < count <= self._count, f"{count} of {self._count} free blocks"
        self._count -= count
        taken: list[int] = []
        if after is not None:
            start = after + 1
            if count == 1 and self._map[start]:
                self._map[start] = TAKEN
                return [start]
            self._cut(taken, start, count)
        if len(taken) < count:
            self._cut(taken, self._fresh(count - len(taken)), count)
        if len(taken) < count:
            self._sweep(taken, count)
        return taken

    def put(self, blocks: Sequence[int]) -> None:
        """These blocks, in any order, are free again."""
        ordered = sorted(blocks)
        previous = -2
        starts = []
        for block in ordered:
            assert not self._map[block], f"block {block} is free twice"
            self._map[block] = FREE
            if block != previous + 1:
                starts.append(block)
            previous = block
        self._count += len(ordered)
        for start in starts:
            self._index(*self._run_of(start))
        if len(self._runs) > self._room:
            self._rebuild()

    def _cut(self, taken: list[int], start: int, count: int) -> None:
        """Take what is free from `start` on without a gap, until `taken` holds `count`."""
        end = self._map.find(TAKEN, start, start + count - len(taken))
        if end < 0:
            end = start + count - len(taken)
        self._map[start:end] = bytes(end - start)
        taken.extend(range(start, end))

    def _fresh(self, count: int) -> int:
        """Where a sequence starts that cannot go on where it ended; it takes what is free there."""
        begin, end = self._longest()
        # Nobody grows into a run from before the first block.
        start = begin if begin == 0 else begin + max(end - begin - count, 0) // 2
        self._known.remove(heappop(self._runs))
        if start > begin:
            self._index(begin, start)
        if start + count < end:
            self._index(start + count, end)
        return start

    def _sweep(self, taken: list[int], count: int) -> None:
        """Take what is free behind the last one, in a circle: no run holds them all."""
        block, find = taken[-1], self._map.find
        for _ in range(count - len(taken)):
            block = find(FREE, block)
            if block < 0:
                block = find(FREE)
            self._map[block] = TAKEN
            taken.append(block)

    def _longest(self) -> tuple[int, int]:
        while True:
            length, begin = self._runs[0]
            end = begin - length
            if self._map[begin] and self._run_of(begin) == (begin, end):
                return begin, end
            heappop(self._runs)
            self._known.remove((length, begin))
            self._split(begin, end)

    def _split(self, begin: int, end: int) -> None:
        """Index the runs within. One that reaches beyond is part of another run of the heap."""
        start = self._map.find(FREE, begin, end)
        while start >= 0:
            first, stop = self._run_of(start)
            if first >= begin and stop <= end:
                self._index(first, stop)
            start = self._map.find(FREE, stop, end)

    def _run_of(self, block: int) -> tuple[int, int]:
        return self._map.rfind(TAKEN, 0, block) + 1, self._map.find(TAKEN, block)

    def _index(self, begin: int, end: int) -> None:
        run = (begin - end, begin)
        if run not in self._known:
            self._known.add(run)
            heappush(self._runs, run)

    def _rebuild(self) -> None:
        self._runs.clear()
        self._known.clear()
        self._split(0, len(self._map))
        heapify(self._runs)
        self._room = 2 * len(self._runs) + SPARE_RUNS
