"""How long one call of an operation takes: the median of many rounds."""

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from jackfield.core.bench.gaps import timing_event
from jackfield.core.bench.kernels.case import Work

LEAST_ROUNDS, MOST_ROUNDS = 3, 50
HEAD_START = 4_000_000
"""Cycles that a GPU waits, 2 ms or so, while the host queues a round."""


def seconds_per_call(work: Work, device: torch.device, seconds: float) -> float:
    """Rounds of all calls for about so many seconds, the first one apart, which may compile.

    On a GPU a round is one CUDA graph if the operation may be in one. Events time it, and the host
    has a head start, so that only what makes the GPU wait for the host in between counts.
    """
    work.run()
    if device.type != "cuda":
        return median(_rounds(lambda: _host_seconds(work), seconds)) / len(work.calls)
    torch.cuda.synchronize(device)
    run = _captured(work) if work.capturable else work.run
    run()
    return median(_rounds(lambda: _device_seconds(run), seconds)) / len(work.calls)


def _rounds(time_one: Callable[[], float], seconds: float) -> list[float]:
    found: list[float] = []
    while len(found) < LEAST_ROUNDS or (sum(found) < seconds and len(found) < MOST_ROUNDS):
        found.append(time_one())
    return found


def _host_seconds(work: Work) -> float:
    started = perf_counter()
    work.run()
    return perf_counter() - started


def _device_seconds(run: Callable[[], object]) -> float:
    begin, end = timing_event(), timing_event()
    torch.cuda._sleep(HEAD_START)  # type: ignore[no-untyped-call]
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _captured(work: Work) -> Callable[[], object]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work.run()
    return graph.replay
