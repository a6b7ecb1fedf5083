"""Weights that look like some but mean nothing, to run a model without its checkpoint."""

from hashlib import sha256
from math import prod

import torch
from torch import Tensor

from jackfield.core.api.model import Shard, Split
from jackfield.core.checkpoint.shard_slice import shard_slice

POOL_SIZE = 4_194_301
"""A prime, so that no two rows of a matrix begin at the same place of the pool."""
SPREAD = 0.02


class DummyWeights:
    """Implements `Weights`: matrices are normal, norms one, biases zero.

    Values depend on seed and name only; a shard is the slice of the whole. They are stretches of
    one pool of numbers, so distant parts of a large matrix share values, but no two rows are alike.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, shard: Shard, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        pool = torch.randn(POOL_SIZE, generator=generator) * SPREAD
        self._pool = pool.to(dtype=dtype, device=device)
        self._shard = shard

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        """Any tensor that is asked for."""
        slices = shard_slice(name, shape, split, self._shard, part)
        if len(shape) == 1:
            size = slices[0].stop - slices[0].start
            return self._pool.new_full((size,), 0.0 if name.endswith("bias") else 1.0)
        row = prod(shape[1:])
        rows = slices[0].stop - slices[0].start
        start = int.from_bytes(sha256(name.encode()).digest()[:8], "big")
        place = start + slices[0].start * row
        filled = stretch(self._pool, place, rows * row).view(rows, *shape[1:])
        return filled[(slice(None), *slices[1:])].contiguous()

    def take_exact(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The same values as `take`."""
        return self.take(name, shape).float()

    def has(self, name: str) -> bool:
        """Nothing is stored."""
        return False

    def ignore(self, pattern: str) -> None:
        """Nothing is stored."""


def stretch(pool: Tensor, start: int, count: int) -> Tensor:
    """So many numbers of a pool from some place on, again and again."""
    result = pool.new_empty(count)
    done = 0
    while done < count:
        begin = (start + done) % POOL_SIZE
        piece = pool[begin : begin + count - done]
        result[done : done + len(piece)] = piece
        done += len(piece)
    return result
