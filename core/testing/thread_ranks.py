"""Ranks that are threads of one process, to test parts of models without starting others."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any, TypeVar

import torch
from torch import Tensor

from jackfield.core.api import Operations, Ranks

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds after which a rank that nobody follows gives up."""


class ThreadGroup:
    """What the threads hand each other. Whoever fails breaks the barrier for all."""

    def __init__(self, size: int) -> None:
        self.barrier = Barrier(size, timeout=PATIENCE)
        self._given: list[Any] = [None] * size

    def exchange(self, rank: int, x: Tensor) -> list[Tensor]:
        """Everybody's, in the order of ranks. Raises AssertionError if they are unlike."""
        self._given[rank] = x.clone()
        self.barrier.wait()
        given = list(self._given)
        self.barrier.wait()
        assert len({(other.shape, other.dtype) for other in given}) == 1, "ranks differ"
        return given


class ThreadCollective:
    """Implements `Collective`."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def unsupported(self, spec: Any, device: torch.device) -> list[str]:
        return []

    def capturable(self) -> bool:
        return False

    def join(self, ranks: Ranks, device: torch.device) -> None:
        """It knows them already."""

    def _exchange(self, x: Tensor) -> list[Tensor]:
        exchanged: list[Tensor] = self._ranks.group.exchange(self._ranks.rank, x)
        return exchanged


class ThreadAllReduce(ThreadCollective):
    """In the order of ranks, and in place, so that nobody relies on what was there."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.copy_(torch.stack(self._exchange(x)).sum(0))


class ThreadAllGather(ThreadCollective):
    """A new tensor."""

    def __call__(self, x: Tensor) -> Tensor:
        return torch.stack(self._exchange(x))


def joined(operations: Operations, ranks: Ranks) -> Operations:
    """The same operations with collectives of threads."""
    return replace(operations, all_reduce=ThreadAllReduce(ranks), all_gather=ThreadAllGather(ranks))


def on_threads(size: int, work: Callable[[Ranks], T]) -> list[T]:
    """What each rank made of it, without gradients. Raises what the first of them raised."""
    group = ThreadGroup(size)

    def run(rank: int) -> T:
        try:
            with torch.inference_mode():
                return work(Ranks(rank, size, group))
        except BaseException:
            group.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    errors = [error for future in futures if (error := future.exception())]
    # Others only find the barrier broken.
    errors.sort(key=lambda error: type(error).__name__ == "BrokenBarrierError")
    if errors:
        raise errors[0]
    return [future.result() for future in futures]
