"""Memory of each rank that those of the same host read and write, as kernels are told of it."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.collective import Ranks
from jackfield.plugins.kernels.triton.launch import power_of_two

LEAVE = 1 << 62
"""Beyond all numbers of calls."""
FLAG_BYTES = 8
HALVES = 2


class Way(Enum):
    """How a sum is made. ONE: everybody reads all that others have. TWO: everybody sums a share,
    and reads the others' sums. APART: by the library that connects the ranks."""

    ONE = 1
    TWO = 2
    APART = 3


class Sizes(NamedTuple):
    """one, two: the largest sums, in bytes, that are made in these ways. programs: of a launch at
    most; all of them run at once."""

    one: int
    two: int
    programs: int

    @property
    def slab(self) -> int:
        """Bytes that a program keeps of a call; a multiple of 16."""
        return max(self.one, self.two) // self.programs // 16 * 16


class Memory(NamedTuple):
    """own: this rank's bytes. addresses: where this process finds each rank's. keeps: what must
    live as long."""

    own: Tensor
    addresses: Sequence[int]
    keeps: Any = None


OpenMemory = Callable[[Ranks, torch.device, int], Memory]
"""Called by all ranks together, each for the same number of bytes."""


class Peers:
    """What a launch is told. table: the ranks' addresses, then that of `leaving`. calls: numbers of
    each program's last call."""

    def __init__(self, ranks: Ranks, sizes: Sizes, memory: Memory, leaving: Tensor) -> None:
        memory.own.zero_()
        device = memory.own.device
        addresses = [*memory.addresses, leaving.data_ptr()]
        self.rank = ranks.rank
        self.table = torch.tensor(addresses, dtype=torch.int64, device=device)
        self.calls = torch.zeros(sizes.programs, dtype=torch.int64, device=device)
        self.constants: Mapping[str, int] = {
            "RANKS": ranks.size,
            "PROGRAMS": sizes.programs,
            "LANES": power_of_two(ranks.size),
            "SLAB": sizes.slab,
        }
        self.sizes = sizes
        self._memory = memory
        self._leaving = leaving

    def way(self, rows: int, row_bytes: int) -> Way:
        """How rows are summed; the same on all ranks."""
        sizes = self.sizes
        if -(-rows // sizes.programs) * row_bytes > sizes.slab:
            return Way.APART
        if rows * row_bytes <= sizes.one:
            return Way.ONE
        return Way.TWO if rows * row_bytes <= sizes.two else Way.APART

    def programs(self, rows: int) -> int:
        """Of a launch."""
        return min(rows, self.sizes.programs)


def bytes_of(ranks: Ranks, sizes: Sizes) -> int:
    """Of each rank's memory: flags, then slabs."""
    flags = sizes.programs * power_of_two(ranks.size) * FLAG_BYTES
    return flags + HALVES * sizes.programs * sizes.slab


def open_memory(ranks: Ranks, device: torch.device, size: int) -> Memory:
    """Symmetric memory of torch. Raises RuntimeError where the system does not allow it."""
    from torch.distributed import _symmetric_memory

    # Not by `_symmetric_memory.empty`, whose memory goes to a pool: a later engine would find it
    # there, still shared with the ranks of this one.
    kind: Any = vars(_symmetric_memory)["_SymmetricMemory"]
    own = kind.empty_strided_p2p((size,), (1,), torch.uint8, device)
    handle = _symmetric_memory.rendezvous(own, ranks.group)
    # The tensor need not begin where the memory that is shared does.
    begin = own.data_ptr() - handle.buffer_ptrs[ranks.rank]
    return Memory(own, [address + begin for address in handle.buffer_ptrs], handle)


def leaving_word(device: torch.device) -> Tensor:
    """A number of the host's that kernels read now and then, 0 until `leave`."""
    pinned = device.type == "cuda"
    return torch.zeros(1, dtype=torch.int64, device="cpu", pin_memory=pinned)


def leave(leaving: Tensor) -> None:
    """Launches wait for nobody any more, and what they compute means nothing. From any thread,
    while the device is busy."""
    leaving.fill_(LEAVE)
