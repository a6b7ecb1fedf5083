"""Sums that ranks make at start, to see whether they can read each other's memory."""

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from jackfield.core.api.collective import Ranks
from jackfield.plugins.kernels.triton.all_reduce_launch import sum_in_place, way_of
from jackfield.plugins.kernels.triton.configs import Config
from jackfield.plugins.kernels.triton.symmetric import Peers, Way, leave

SECONDS = 60.0
"""For all of it; others may have to compile kernels first."""
PAUSE = 0.001
REPLAYS = 16


class Trial:
    """Ranks make it together. leaving: the word that ends their waiting."""

    def __init__(
        self, ranks: Ranks, peers: Peers, config: Config, device: torch.device, leaving: Tensor
    ) -> None:
        self._ranks, self._peers, self._config = ranks, peers, config
        self._device, self._leaving = device, leaving
        self._wrong = torch.zeros((), dtype=torch.int64, device=device)

    def passed(self) -> bool:
        """Whether all sums were right, launched one by one and, on a GPU, by CUDA graphs. Whatever
        goes wrong, it ends."""
        givens = list(self._givens())
        for given in givens:
            self._check(self._sums(given), given, 1)
        if self._device.type == "cuda":
            self._replay(givens)
        ended = _ends(self._device)
        if not ended:
            leave(self._leaving)
        return ended and not int(self._wrong)

    def _givens(self) -> Iterator[Tensor]:
        """What ranks have: a row, and so much that a sum of it takes two shots, if any does."""
        block = self._config["BLOCK"]
        sizes = self._peers.sizes
        row = torch.ones(block, device=self._device)
        yield row
        rows = sizes.one // (block * row.itemsize) + 1
        large = row.repeat(rows)
        if way_of(large, self._peers, self._config) is Way.TWO:
            yield large

    def _sums(self, given: Tensor) -> list[Tensor]:
        """One behind a kernel, the next behind a copy of memory."""
        given.mul_(self._ranks.rank + 1)
        found = [given + 0, given.clone()]
        for x in found:
            way = way_of(x, self._peers, self._config)
            assert way is not Way.APART, "programs have no room for one row of the table"
            sum_in_place(x, self._peers, self._config, way)
        return found

    def _check(self, found: list[Tensor], given: Tensor, ones: int) -> None:
        total = ones * self._ranks.size * (self._ranks.size + 1) // 2
        for x in found:
            self._wrong += (x != total).any()
        given.fill_(ones + 1)

    def _replay(self, givens: list[Tensor]) -> None:
        """Graphs in turns, on inputs that change: whoever reads too early reads the last ones."""
        graphs = [self._captured(given) for given in givens]
        for given in givens:
            given.fill_(1)
        for step in range(REPLAYS):
            for given, (graph, found) in zip(givens, graphs, strict=True):
                graph.replay()
                self._check(found, given, step + 1)

    def _captured(self, given: Tensor) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
        """Without waiting for the device, which may wait for other ranks."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self._device)
        current = torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                found = self._sums(given)
            finally:
                graph.capture_end()
        current.wait_stream(stream)
        return graph, found


def _ends(device: torch.device) -> bool:
    """Whether the device gets done with what it has, within a while."""
    if device.type != "cuda":
        return True
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(device))
    limit = time.monotonic() + SECONDS
    while not done.query() and time.monotonic() < limit:
        time.sleep(PAUSE)
    return bool(done.query())
