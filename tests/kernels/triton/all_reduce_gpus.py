"""What a process that is a rank with a GPU does for `test_all_reduce_gpus.py`."""

import random
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as distributed
from torch import Tensor

from jackfield.core.api import Ranks
from jackfield.core.api.kernel import OpSpec
from jackfield.core.process.rank_connect import prepare_nccl
from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.all_reduce import TritonAllReduce
from jackfield.plugins.kernels.triton.all_reduce_add_rms_norm import TritonAllReduceAddRmsNorm
from jackfield.plugins.kernels.triton.all_reduce_launch import sum_in_place
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import Sizes, Way, leave
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange

WIDTH, EPS = 4096, 1e-5
SIZES = Sizes(1 << 19, 1 << 22, 64)
ROWS = (1, 2, 63, 64, 65, 200, 500, 1500)
TYPES = (torch.float32, torch.float16, torch.bfloat16)
REPLAYS = 1000
PATIENCE = 30.0


class Operations(NamedTuple):
    """Those of one exchange."""

    exchange: Exchange
    sum: TritonAllReduce
    fused: TritonAllReduceAddRmsNorm
    norm: TritonAddRmsNorm


def work(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Everything on one group of NCCL, which takes the place of the one that is there."""
    prepare_nccl()
    device = torch.device("cuda", ranks.rank)
    torch.cuda.set_device(device)
    distributed.destroy_process_group()
    distributed.init_process_group(
        "nccl", init_method=f"file://{folder / 'nccl'}", rank=ranks.rank, world_size=ranks.size,
        timeout=timedelta(seconds=90), device_id=device,
    )  # fmt: skip
    ranks = ranks._replace(group=distributed.group.WORLD)
    with device:
        ops = operations(ranks, device)
        spec = OpSpec(torch.bfloat16, WIDTH, 128, 1000, ranks)
        found = {
            "reasons": ops.exchange.unsupported(spec, device),
            "opened": ops.exchange.peers is not None,
            "eager": [_eager(ops, ranks, rows, dtype) for rows in ROWS for dtype in TYPES],
            **{name: _graphs(ops, ranks, copy) for name, copy in COPIES.items()},
            "again": operations(ranks, device).exchange.peers is not None,
            "left": _left(operations(ranks, device), ranks),
        }
        torch.cuda.synchronize()
        distributed.barrier()
    return found


def operations(ranks: Ranks, device: torch.device) -> Operations:
    config = TritonConfig()
    exchange = Exchange(config, SIZES)
    exchange.join(ranks, device)
    fused = TritonAllReduceAddRmsNorm(exchange, config)
    return Operations(exchange, TritonAllReduce(exchange), fused, TritonAddRmsNorm(config))


def _gathered(x: Tensor, size: int) -> Tensor:
    found = x.new_empty((size, *x.shape))
    distributed.all_gather_into_tensor(found.flatten(), x.contiguous().flatten())
    return found


def _eager(ops: Operations, ranks: Ranks, rows: int, dtype: torch.dtype) -> dict[str, bool]:
    """exact: in the order of ranks, in float32, rounded once, unless NCCL adds."""
    torch.manual_seed(100 * rows + ranks.rank)
    x = torch.randn(rows, WIDTH).to(dtype)
    torch.manual_seed(rows)
    residual, weight = torch.randn(rows, WIDTH).to(dtype), torch.randn(WIDTH).to(dtype)
    parts = _gathered(x, ranks.size)
    wanted = parts[0].float()
    for part in parts[1:]:
        wanted += part.float()
    theirs = x.clone()
    distributed.all_reduce(theirs)
    found = ops.sum(x.clone())
    out, kept = ops.fused(x.clone(), residual.clone(), weight, EPS)
    wanted_out, wanted_kept = ops.norm(wanted.to(dtype), residual.clone(), weight, EPS)
    large = x.numel() * x.itemsize > SIZES.two
    exact = torch.equal(found, wanted.to(dtype)) and torch.equal(kept, wanted_kept)
    close = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    return {
        "exact": exact or large,
        "as NCCL": torch.allclose(found, theirs, atol=close, rtol=close),
        "normed": torch.allclose(out, wanted_out, atol=close, rtol=close),
        "alike": all(
            bool((_gathered(one, ranks.size) == one).all()) for one in (found, out, kept)
        ),
    }  # fmt: skip


Copy = Callable[[Tensor], Tensor]
COPIES: Mapping[str, Copy] = {"by a kernel": lambda x: x + 0, "as memory": torch.clone}
"""How inputs are kept from being summed in place: what is in front of a launch may matter."""


class Graph(NamedTuple):
    """Some calls on static inputs. fill: gives them what step and rank say. wrong: whether what
    comes out of a replay is not what should."""

    graph: torch.cuda.CUDAGraph
    fill: Callable[[int], None]
    wrong: Callable[[int], Tensor]


def _graph(ops: Operations, ranks: Ranks, rows: int, copy: Copy) -> Graph:
    """Two sums and one with what follows. Numbers are such that every type holds their sums."""
    pattern = (torch.arange(rows * WIDTH) % 11).view(rows, WIDTH)
    inputs = [torch.zeros(rows, WIDTH, dtype=torch.bfloat16) for _ in range(3)]
    residual, weight = torch.zeros_like(inputs[0]), torch.ones(WIDTH, dtype=torch.bfloat16)
    outputs: list[Tensor] = []

    def body() -> None:
        first, second = ops.sum(copy(inputs[0])), ops.sum(copy(inputs[1]))
        _, kept = ops.fused(copy(inputs[2]), copy(residual), weight, EPS)
        outputs[:] = [first, second, kept]

    def value(step: int, at: int, rank: int) -> Tensor:
        return (pattern + step + 3 * at + rank) % 13

    def fill(step: int) -> None:
        for at, one in enumerate(inputs):
            one.copy_(value(step, at, ranks.rank))

    def wrong(step: int) -> Tensor:
        found = torch.zeros((), dtype=torch.bool)
        for at, one in enumerate(outputs):
            found |= (one != sum(value(step, at, rank) for rank in range(ranks.size))).any()
        return found

    body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        body()
    return Graph(graph, fill, wrong)


def _graphs(ops: Operations, ranks: Ranks, copy: Copy) -> dict[str, int]:
    """How many replays were wrong, by rows, and how many eager calls. Graphs of several sizes, in
    any order that all ranks have alike, with eager calls between them; now and then a rank is late
    on its device."""
    graphs = {str(rows): _graph(ops, ranks, rows, copy) for rows in (1, 8, 64, 65, 300, 600)}
    same, own = random.Random(3), random.Random(ranks.rank)
    wrong = {name: torch.zeros((), dtype=torch.int64) for name in (*graphs, "eager")}
    for step in range(REPLAYS):
        rows = same.choice(list(graphs))
        graph = graphs[rows]
        graph.fill(step)
        if own.random() < 0.3:
            torch.cuda._sleep(own.randrange(300_000))
        graph.graph.replay()
        wrong[rows] += graph.wrong(step)
        if same.random() < 0.2:
            x = torch.full((same.choice((1, 5, 70)), WIDTH), float(step % 17 + ranks.rank))
            total = sum(step % 17 + rank for rank in range(ranks.size))
            wrong["eager"] += (ops.sum(x.bfloat16()) != total).any()
    return {name: int(count.item()) for name, count in wrong.items() if count.item()}


def _left(ops: Operations, ranks: Ranks) -> list[bool]:
    """Whether a launch waits for others that do not come, and ends when told that they never
    will."""
    peers, done = ops.exchange.peers, torch.cuda.Event()
    assert peers is not None
    if ranks.rank:
        return [True, True]
    x = torch.ones(1, WIDTH)
    sum_in_place(x, peers, ops.exchange.configs.find("sum", x.dtype, x.device), Way.ONE)
    done.record()
    time.sleep(0.3)
    waited = not done.query()
    leave(ops.exchange._leaving)
    limit = time.monotonic() + PATIENCE
    while not done.query() and time.monotonic() < limit:
        time.sleep(0.01)
    return [waited, done.query()]
