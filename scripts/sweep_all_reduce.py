"""Times sums over ranks that have a GPU each, in CUDA graphs: NCCL's, those of this project in both
ways, with and without residual sum and norm, and torch's over symmetric memory.

Prints microseconds of a call, the median over replays, by rows of 4096 bfloat16.

    python scripts/sweep_all_reduce.py [ranks, or as many as there are GPUs]
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as distributed
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from jackfield.core.api import Ranks
from jackfield.core.process.rank_connect import prepare_nccl
from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.all_reduce import TritonAllReduce
from jackfield.plugins.kernels.triton.all_reduce_add_rms_norm import TritonAllReduceAddRmsNorm
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import Sizes
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange

ROWS = (1, 8, 64, 256, 1024, 8192)
WIDTH, TYPE, EPS = 4096, torch.bfloat16, 1e-6
LARGEST = 16 << 20
"""Bytes up to which sums are made in the ways of this project."""
CALLS, FEW, ROUNDS = 20, 5, 9
COLUMNS = ("NCCL", "one-shot", "two-shot", "torch one", "torch two", "NCCL+norm", "fused one",
           "fused two")  # fmt: skip


class Place(NamedTuple):
    """What a rank times with. ways: names of exchanges, each of which knows one way."""

    ranks: Ranks
    device: torch.device
    ways: dict[str, Exchange]
    norm: TritonAddRmsNorm


def main(size: str = "") -> None:
    count = int(size or torch.cuda.device_count())
    if count < 2 or count > torch.cuda.device_count():
        raise SystemExit(
            f"{count} ranks need as many GPUs; torch finds {torch.cuda.device_count()}"
        )
    prepare_nccl()
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (count, folder), nprocs=count)


def work(rank: int, size: int, folder: str) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl", init_method=f"file://{Path(folder) / 'store'}", rank=rank, world_size=size,
        timeout=timedelta(seconds=50), device_id=device,
    )  # fmt: skip
    with device, torch.inference_mode():
        sweep(place_of(Ranks(rank, size, distributed.group.WORLD), device))
    distributed.destroy_process_group()


def place_of(ranks: Ranks, device: torch.device) -> Place:
    config, programs = TritonConfig(), 64
    ways = {"one": Sizes(LARGEST, 0, programs), "two": Sizes(0, LARGEST, programs)}
    exchanges = {name: Exchange(config, sizes) for name, sizes in ways.items()}
    for exchange in exchanges.values():
        exchange.join(ranks, device)
        if exchange.peers is None:
            raise SystemExit("symmetric memory does not work here")
    return Place(ranks, device, exchanges, TritonAddRmsNorm(config))


def sweep(place: Place) -> None:
    table = []
    for rows in ROWS:
        found = {name: timed(place, rows, call) for name, call in calls(place, rows)}
        table.append((rows, found))
    if place.ranks.rank:
        return
    print(f"{place.ranks.size} ranks, rows of {WIDTH} {TYPE}, us of a call")
    print("    rows      KiB" + "".join(f"{name:>11}" for name in COLUMNS))
    for rows, found in table:
        cells = (f"{found[name]:11.1f}" if name in found else f"{'-':>11}" for name in COLUMNS)
        print(f"{rows:8d} {rows * WIDTH * TYPE.itemsize >> 10:8d}" + "".join(cells))


def calls(place: Place, rows: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is timed, by its column."""
    x, residual = (torch.zeros(rows, WIDTH, dtype=TYPE) for _ in range(2))
    weight, group = torch.ones(WIDTH, dtype=TYPE), place.ranks.group

    def library() -> Tensor:
        distributed.all_reduce(x, group=group)
        return x

    yield "NCCL", library
    yield "NCCL+norm", lambda: place.norm(library(), residual, weight, EPS)
    if rows * WIDTH * TYPE.itemsize > LARGEST:
        return
    shots = {"one": "one-shot", "two": "two-shot"}
    for name, exchange in place.ways.items():
        reduce = TritonAllReduce(exchange)
        fused = TritonAllReduceAddRmsNorm(exchange, TritonConfig())
        yield shots[name], lambda reduce=reduce: reduce(x)
        yield f"fused {name}", lambda fused=fused: fused(x, residual, weight, EPS)
    yield from torchs(place, rows)


def torchs(place: Place, rows: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Those of torch that take symmetric memory; none where they do not work."""
    from torch.distributed import _symmetric_memory

    group = place.ranks.group
    with torch.inference_mode(False):
        shared = _symmetric_memory.empty((rows, WIDTH), dtype=TYPE, device=place.device)
        shared.zero_()
        _symmetric_memory.rendezvous(shared, group)
    for column, name in (
        ("torch one", "one_shot_all_reduce"),
        ("torch two", "two_shot_all_reduce_"),
    ):
        call = getattr(torch.ops.symm_mem, name, None)
        if call is not None:
            yield column, lambda call=call: call(shared, "sum", group.group_name)


def timed(place: Place, rows: int, call: Callable[[], Any]) -> float:
    """Microseconds: the median of replays that all ranks begin at about the same time."""
    count = FEW if rows > 1024 else CALLS
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    try:
        with torch.cuda.stream(stream):
            call()
            stream.synchronize()
            graph.capture_begin(capture_error_mode="thread_local")
            for _ in range(count):
                call()
            graph.capture_end()
    except RuntimeError as error:
        print(f"rank {place.ranks.rank}, {rows} rows: {error}", file=sys.stderr)
        return float("nan")
    times = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        distributed.barrier()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / count)
    return sorted(times)[ROUNDS // 2]


if __name__ == "__main__":
    main(*sys.argv[1:2])
