"""What a process that is a rank does for `test_shards_processes.py`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import Any

import torch

from jackfield.core.api import PolicyConfig, Ranks, Shard
from jackfield.plugins.kernels.torch_ops import TorchKernels

CPU = torch.device("cpu")


def work(ranks: Ranks, cases: Sequence[tuple[Path, bool]]) -> dict[str, Any]:
    """Of each case its folder and whether ranks have whole experts."""
    divided = run_path(str(Path(__file__).with_name("divided.py")))
    offered: Any = TorchKernels(PolicyConfig()).operations()
    reduce, gather = offered["all_reduce"], offered["all_gather"]
    for each in (reduce, gather):
        each.join(ranks, CPU)
    ops = replace(divided["operations"](), all_reduce=reduce, all_gather=gather)
    shards = [Shard(ranks.rank, ranks.size, whole) for _, whole in cases]
    models = [
        divided["run"](folder, ops, shard, (9,))
        for (folder, _), shard in zip(cases, shards, strict=True)
    ]
    return {
        "models": [(m.logits_TV, m.bytes_taken, m.counts) for m in models],
        **_collectives(ranks, reduce, gather),
    }


def _collectives(ranks: Ranks, reduce: Any, gather: Any) -> dict[str, Any]:
    """Of every type, of tensors that are empty, have gaps, or have one number."""
    found: dict[str, Any] = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        x = torch.arange(24).view(4, 6).to(dtype) * (ranks.rank + 1)
        found[f"sum {dtype}"] = reduce(x.clone())
        found[f"gathered {dtype}"] = gather(x)
        found[f"gaps {dtype}"] = reduce(x.clone()[:, 1:4]), gather(x[:, 1:4])
    found["nothing"] = reduce(torch.ones(0, 3)), gather(torch.ones(0, 3))
    noise = torch.randn(257, generator=torch.Generator().manual_seed(ranks.rank))
    found["noise"] = [reduce(noise.clone()) for _ in range(3)]
    return found
