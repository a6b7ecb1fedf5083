"""What a process that is a rank with a GPU does for `test_all_reduce_gpus.py`."""

import time
from datetime import timedelta
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from jackfield.core.api import Ranks
from jackfield.core.api.kernel import OpSpec
from jackfield.core.process.rank_connect import prepare_nccl
from jackfield.plugins.kernels.triton.all_reduce_launch import sum_in_place
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import Way, leave
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange

graphs: Any = SimpleNamespace(**run_path(str(Path(__file__).with_name("all_reduce_graphs.py"))))
WIDTH, EPS = graphs.WIDTH, graphs.EPS
GRAPH_ROWS = (1, 8, 64, 65, 300, 600)
ROWS = (1, 2, 63, 64, 65, 200, 500, 1500)
TYPES = (torch.float32, torch.float16, torch.bfloat16)
PATIENCE = 30.0


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
        place = graphs.Place(ranks, ops, torch.cuda.Stream())
        spec = OpSpec(torch.bfloat16, WIDTH, 128, 1000, ranks)
        found = {
            "reasons": ops.exchange.unsupported(spec, device),
            "opened": ops.exchange.peers is not None,
            "eager": [_eager(ops, ranks, rows, dtype) for rows in ROWS for dtype in TYPES],
            **{
                name: graphs.replayed([place], GRAPH_ROWS, copy)
                for name, copy in graphs.COPIES.items()
            },
            "again": operations(ranks, device).exchange.peers is not None,
            "left": _left(operations(ranks, device), ranks),
        }
        torch.cuda.synchronize()
        distributed.barrier()
    return found


def operations(ranks: Ranks, device: torch.device) -> Any:
    exchange = Exchange(TritonConfig(), graphs.SIZES)
    exchange.join(ranks, device)
    return graphs.Operations.of(exchange)


def _gathered(x: Tensor, size: int) -> Tensor:
    found = x.new_empty((size, *x.shape))
    distributed.all_gather_into_tensor(found.flatten(), x.contiguous().flatten())
    return found


def _eager(ops: Any, ranks: Ranks, rows: int, dtype: torch.dtype) -> dict[str, bool]:
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
    large = x.numel() * x.itemsize > graphs.SIZES.two
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


def _left(ops: Any, ranks: Ranks) -> list[bool]:
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
