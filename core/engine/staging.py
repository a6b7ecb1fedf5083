"""What the host tells a device of a step: one copy from locked memory, for which nobody waits."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from jackfield.core.engine.packing import Packing

SLOTS = 4
"""Copies that may be under way: of the steps in flight, of the one that is made, and one more."""


class Slot:
    """Locked memory, and the copy from it that may still be under way."""

    def __init__(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        self.bytes = self.memory.numpy()
        self.copied: torch.cuda.Event | None = None

    def reserve(self, size: int, *, locked: bool) -> None:
        """At least so many bytes that no copy reads any more."""
        if self.copied is not None:
            self.copied.synchronize()
        if len(self.bytes) < size:
            size = 1 << (size - 1).bit_length()
            self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=locked)
            self.bytes = self.memory.numpy()


class Staging:
    """A ring of slots. Copies are ordered as what is submitted to the current stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._slots = [Slot() for _ in range(SLOTS)]
        self._next = 0

    def upload(self, arrays: Sequence[np.ndarray]) -> list[Tensor]:
        """The arrays on the device, in memory of their own."""
        packing = Packing.of(arrays)
        buffer = torch.empty(packing.size, dtype=torch.uint8, device=self._device)
        self.fill(buffer, packing, arrays)
        return packing.views(buffer)

    def fill(self, buffer: Tensor, packing: Packing, arrays: Sequence[np.ndarray]) -> None:
        """Copy the arrays into a buffer that what was submitted before may still read."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % SLOTS
        slot.reserve(packing.size, locked=self._is_cuda)
        packing.fill(slot.bytes, arrays)
        buffer.copy_(slot.memory[: packing.size], non_blocking=True)
        if self._is_cuda:
            if slot.copied is None:
                slot.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            slot.copied.record()
