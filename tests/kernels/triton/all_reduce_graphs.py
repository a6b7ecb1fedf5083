"""Sums over ranks in CUDA graphs, replayed in any order that all ranks have alike, with eager calls
between them. A process has one rank, on a GPU of its own, or all of them on streams of one GPU."""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import Ranks
from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.all_reduce import TritonAllReduce
from jackfield.plugins.kernels.triton.all_reduce_add_rms_norm import TritonAllReduceAddRmsNorm
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import Sizes
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange

WIDTH, EPS = 4096, 1e-5
SIZES = Sizes(1 << 19, 1 << 22, 64)
REPLAYS = 1000
EAGER_ROWS = (1, 5, 70)

Copy = Callable[[Tensor], Tensor]
COPIES: Mapping[str, Copy] = {"by a kernel": lambda x: x + 0, "as memory": torch.clone}
"""How inputs are kept from being summed in place: what is in front of a launch may matter."""


class Operations(NamedTuple):
    """Those of one exchange."""

    exchange: Exchange
    sum: TritonAllReduce
    fused: TritonAllReduceAddRmsNorm
    norm: TritonAddRmsNorm

    @classmethod
    def of(cls, exchange: Exchange) -> "Operations":
        config = TritonConfig()
        fused = TritonAllReduceAddRmsNorm(exchange, config)
        return cls(exchange, TritonAllReduce(exchange), fused, TritonAddRmsNorm(config))


class Place(NamedTuple):
    """Where a rank is. stream: that its launches go to."""

    ranks: Ranks
    ops: Operations
    stream: torch.cuda.Stream

    def here(self) -> AbstractContextManager[None]:
        return torch.cuda.stream(self.stream)


class Calls:
    """Two sums and one with what follows, on static inputs of a rank. Numbers are such that every
    type holds their sums."""

    def __init__(self, place: Place, rows: int, copy: Copy) -> None:
        self._place, self._copy = place, copy
        self._pattern = (torch.arange(rows * WIDTH) % 11).view(rows, WIDTH)
        self._inputs = [torch.zeros(rows, WIDTH, dtype=torch.bfloat16) for _ in range(3)]
        self._residual = torch.zeros_like(self._inputs[0])
        self._weight = torch.ones(WIDTH, dtype=torch.bfloat16)
        self._outputs: list[Tensor] = []
        self._graph = torch.cuda.CUDAGraph()

    def make(self) -> None:
        ops, copy = self._place.ops, self._copy
        first, second = ops.sum(copy(self._inputs[0])), ops.sum(copy(self._inputs[1]))
        _, kept = ops.fused(copy(self._inputs[2]), copy(self._residual), self._weight, EPS)
        self._outputs = [first, second, kept]

    def capture(self) -> None:
        stream = self._place.stream
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self.make()

    def replay(self, step: int, late: int) -> Tensor:
        """Whether anything that came out is wrong. late: cycles of the device before it begins."""
        for at, one in enumerate(self._inputs):
            one.copy_(self._value(step, at, self._place.ranks.rank))
        if late:
            torch.cuda._sleep(late)
        self._graph.replay()
        found = torch.zeros((), dtype=torch.bool)
        for at, one in enumerate(self._outputs):
            ranks = range(self._place.ranks.size)
            found |= (one != sum(self._value(step, at, rank) for rank in ranks)).any()
        return found

    def _value(self, step: int, at: int, rank: int) -> Tensor:
        return (self._pattern + step + 3 * at + rank) % 13


def replayed(places: Sequence[Place], rows: Sequence[int], copy: Copy) -> dict[str, int]:
    """How many replays were wrong, by rows, and how many eager calls, of all ranks that are here.
    Now and then one of them is late on its device."""
    graphs = {one: _captured(places, one, copy) for one in rows}
    names = (*map(str, rows), "eager")
    wrong = [{name: torch.zeros((), dtype=torch.int64) for name in names} for _ in places]
    own = [random.Random(place.ranks.rank) for place in places]
    same = random.Random(3)
    torch.cuda.synchronize()
    for step in range(REPLAYS):
        chosen, eager_rows = same.choice(rows), same.choice((0, 0, 0, 0, *EAGER_ROWS))
        for at, place in enumerate(places):
            late = own[at].randrange(300_000) if own[at].random() < 0.3 else 0
            with place.here():
                wrong[at][str(chosen)] += graphs[chosen][at].replay(step, late)
                if eager_rows:
                    wrong[at]["eager"] += _eager_wrong(place, eager_rows, step)
    torch.cuda.synchronize()
    totals = {name: sum(int(each[name]) for each in wrong) for name in names}
    return {name: total for name, total in totals.items() if total}


def _captured(places: Sequence[Place], rows: int, copy: Copy) -> list[Calls]:
    """All ranks make the calls once before anybody waits for the device: a rank waits there for
    the others."""
    torch.cuda.synchronize()
    calls = [Calls(place, rows, copy) for place in places]
    torch.cuda.synchronize()
    for one, place in zip(calls, places, strict=True):
        with place.here():
            one.make()
    torch.cuda.synchronize()
    for one in calls:
        one.capture()
    return calls


def _eager_wrong(place: Place, rows: int, step: int) -> Tensor:
    ranks = place.ranks
    x = torch.full((rows, WIDTH), float(step % 17 + ranks.rank))
    total = sum(step % 17 + rank for rank in range(ranks.size))
    return (place.ops.sum(x.bfloat16()) != total).any()
