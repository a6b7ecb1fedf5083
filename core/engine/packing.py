"""Arrays of different types side by side in one piece of memory."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ALIGNMENT = 16
"""Bytes; kernels are compiled for pointers that are multiples of it."""
TYPES = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.float32): torch.float32,
}


class Part(NamedTuple):
    """One array: its type, its entries, and the byte at which it begins."""

    dtype: np.dtype
    entries: int
    begin: int

    @property
    def end(self) -> int:
        """The byte after its last."""
        return self.begin + self.entries * self.dtype.itemsize


class Packing(NamedTuple):
    """Where each array lies. size: bytes of all."""

    parts: tuple[Part, ...]
    size: int

    @classmethod
    def of(cls, arrays: Sequence[np.ndarray]) -> "Packing":
        """Room for arrays like these."""
        parts, begin = [], 0
        for array in arrays:
            part = Part(array.dtype, array.size, begin)
            parts.append(part)
            begin = -(-part.end // ALIGNMENT) * ALIGNMENT
        return cls(tuple(parts), begin)

    def fill(self, memory: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """Copy the arrays to their places in memory (uint8)."""
        for part, array in zip(self.parts, arrays, strict=True):
            memory[part.begin : part.end].view(part.dtype)[:] = array

    def views(self, buffer: Tensor) -> list[Tensor]:
        """The arrays as tensors in a buffer (uint8)."""
        return [buffer[part.begin : part.end].view(TYPES[part.dtype]) for part in self.parts]
