"""CUDA graphs of what a sweep times, and how long their replays take."""

from collections.abc import Callable

import torch


def captured(body: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """After a run that compiles what is not there yet."""
    body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def replays(graph: torch.cuda.CUDAGraph, rounds: int) -> list[float]:
    """Microseconds of each replay, ascending, without a first one."""
    times = []
    for _ in range(rounds + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return sorted(times[1:])


def per_launch(body: Callable[[], object], launches: int, rounds: int) -> float:
    """Microseconds of one launch of those of `body`, which has been run before: the best of some
    replays, since others can only make it slower."""
    # Without the cleaning up of `torch.cuda.graph`, which takes longer than all else here.
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        body()
        graph.capture_end()
    return replays(graph, rounds)[0] / launches
