"""Blocks in the memory of the host."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jackfield.core.api import CapacityError, TierSpace, format_bytes
from jackfield.plugins.cache.swap.slab import new_slab, unlock

if TYPE_CHECKING:
    from torch import Tensor

SLAB_BYTES = 64 * 2**20
MEMINFO = Path("/proc/meminfo")


class HostStore:
    """Slabs with a row per slot. A slab is there once one of its rows is written.

    A GPU copies to and from the rows themselves, since its slabs are locked: copying once more, to
    and from a locked buffer, would take several times as long as the way between GPU and host.
    """

    def __init__(self, space: TierSpace) -> None:
        _check_memory(space)
        self._block_bytes = space.block_bytes
        self._pinned = space.pinned
        self._num_rows = min(max(SLAB_BYTES // space.block_bytes, 1), space.num_slots)
        self._slabs: dict[int, Tensor] = {}
        self._filled = bytearray(space.num_slots)

    def put(self, slot: int, data_B: "Tensor") -> None:
        self.target(slot).copy_(data_B)

    def get(self, slot: int, into_B: "Tensor") -> None:
        into_B.copy_(self.source(slot))

    def target(self, slot: int) -> "Tensor":
        index, row = divmod(slot, self._num_rows)
        if index not in self._slabs:
            num_rows = min(self._num_rows, len(self._filled) - index * self._num_rows)
            self._slabs[index] = new_slab(num_rows, self._block_bytes, self._pinned)
        self._filled[slot] = True
        return self._slabs[index][row]

    def source(self, slot: int) -> "Tensor":
        if not self._filled[slot]:
            raise LookupError("it holds nothing")
        index, row = divmod(slot, self._num_rows)
        return self._slabs[index][row]

    def drop(self, slot: int) -> None:
        self._filled[slot] = False

    def close(self) -> None:
        while self._slabs:
            _, slab = self._slabs.popitem()
            if self._pinned:
                unlock(slab)


def _check_memory(space: TierSpace) -> None:
    """Now, since the system would grant the memory and kill a process when it is used."""
    needed = space.num_slots * space.block_bytes
    total, free = _memory()
    if needed > free:
        raise CapacityError(
            f"cache.swap.memory takes {format_bytes(needed)}, but only {format_bytes(free)} of "
            f"the host's {format_bytes(total)} are free; set cache.swap.memory to less, or take "
            f"'swap' out of cache.stack"
        )


def _memory() -> tuple[int, int]:
    """All memory of the machine, and what is free now, in bytes."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lines = MEMINFO.read_text().splitlines() if MEMINFO.exists() else []
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return total, free[0] if free else total
