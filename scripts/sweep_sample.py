"""Times the sampler's kernels in CUDA graphs, and holds what they keep against torch.

Prints a table of microseconds; writes it as JSON to $OUT/sweep_sample.json if OUT is set. With
`--all`, for float32 and more numbers of rows, too, and beside torch's sampler. With `--cut`, times
block sizes and numbers of warps of the kernel that finds the cut, and of the one in front of it,
instead. All kernels are compiled first, by several processes.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import SampleBatch
from jackfield.plugins.kernels.torch_ops.sample import TorchSample
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.sample import TritonSample
from jackfield.plugins.kernels.triton.support import TritonConfig

VOCABULARY = 151_936
ROWS = (1, 64, 256)
ALL_ROWS = (1, 8, 20, 64, 256)
WORKERS = 12
COPIES = 4
"""Logits that a graph goes through in turn, so that they are not all in the cache at once."""
REPLAYS = 10
CUTS = ((8, 4), (8, 8), (16, 4), (16, 8), (32, 8), (16, 16), (32, 16))
SUMS = ((8, 4), (16, 4), (32, 4), (32, 8), (64, 8))
"""Blocks of a tile, and warps."""


class Case(NamedTuple):
    """peaky: a few tokens have most of the mass, as models' have; else all are nearly alike."""

    name: str
    setting: tuple[float, int, float, float]
    peaky: bool


CASES = (
    Case("greedy", (0.0, 0, 1.0, 0.0), True),
    Case("temperature", (0.6, 0, 1.0, 0.0), True),
    Case("top_k 20, top_p 0.95", (0.6, 20, 0.95, 0.0), True),
    Case("top_k 20, top_p 0.95, flat", (0.6, 20, 0.95, 0.0), False),
    Case("top_p 0.9", (1.0, 0, 0.9, 0.0), True),
    Case("top_p 0.9, flat", (1.0, 0, 0.9, 0.0), False),
    Case("top_k 5000, top_p 0.9, flat", (1.0, 5000, 0.9, 0.0), False),
    Case("min_p 0.05", (1.0, 0, 1.0, 0.05), True),
)


class Variant(NamedTuple):
    """Another configuration of kernels whose names in the table begin so."""

    kernel: str
    tile: int
    warps: int


class OneConfig:
    """The shipped table, but for a variant."""

    def __init__(self, variant: Variant) -> None:
        self._table = Configs("sample")
        self._kernel = variant.kernel
        self._config = {"TILE": variant.tile, "num_warps": variant.warps, "num_stages": 1}

    def find(self, shape: str, *where: Any) -> Mapping[str, int]:
        return self._config if shape.startswith(self._kernel) else self._table.find(shape, *where)


def sampler(variant: Variant | None) -> TritonSample:
    return TritonSample(TritonConfig(), None if variant is None else OneConfig(variant))


def prepare(job: tuple[Variant | None, torch.dtype, int]) -> None:
    """Compiles what a variant needs for so many rows."""
    variant, dtype, rows = job
    logits = torch.randn(rows, VOCABULARY, device="cuda").to(dtype)
    for case in CASES[:3]:
        sampler(variant)(logits, batch_of(case, rows))


def prepare_all(variants: list[Variant | None], dtypes: tuple[torch.dtype, ...]) -> None:
    jobs = [*product(variants, dtypes, (1,)), *product({None} & {*variants}, dtypes, (256,))]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        list(pool.map(prepare, jobs))


def logits_of(case: Case, rows: int, dtype: torch.dtype) -> Tensor:
    x = torch.randn(rows, VOCABULARY, device="cuda")
    # Ranks fall about as a power does, as models' probabilities do.
    x = 2.5 * x - 8.0 if case.peaky else 0.02 * x
    if case.peaky:
        at = torch.randint(VOCABULARY, (rows, 200), device="cuda")
        ranks = torch.arange(1, 201, device="cuda").float()
        x.scatter_(1, at, (12.0 - 1.8 * ranks.log()).expand(rows, -1))
    return x.to(dtype)


def batch_of(case: Case, rows: int) -> SampleBatch:
    temperature, top_k, top_p, min_p = case.setting
    columns = (
        torch.full((rows,), temperature),
        torch.full((rows,), top_k, dtype=torch.int32),
        torch.full((rows,), top_p),
        torch.full((rows,), min_p),
        torch.arange(rows),
        torch.arange(rows) * 7,
    )
    filtered = temperature > 0 and (top_k > 0 or top_p < 1 or min_p > 0)
    return SampleBatch(*(c.cuda() for c in columns), temperature == 0, filtered)


def microseconds(sample: Any, copies: list[Tensor], batch: SampleBatch) -> float:
    """Of one call, within a graph of several."""
    for logits in copies:
        sample(logits, batch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for logits in copies:
            sample(logits, batch)
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3 / REPLAYS / len(copies)


def eager_microseconds(logits: Tensor, batch: SampleBatch) -> float:
    """Of torch's sampler, which asks the device and so is in no graph."""
    sample = TorchSample()
    sample(logits.clone(), batch)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(3):
        sample(logits, batch)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3 / 3


def kept(logits: Tensor, case: Case) -> Tensor:
    """The mask of a row, by a sort, in float64."""
    temperature, top_k, top_p, min_p = case.setting
    p = (logits.double() / temperature).softmax(-1)
    p = torch.where(p < min_p * p.max(), 0, p)
    order = torch.sort(logits.float(), descending=True, stable=True).indices
    if top_k:
        p[order[top_k:]] = 0
    p /= p.sum()
    if top_p < 1:
        p[order] = torch.where(p[order].cumsum(0) - p[order] < top_p, p[order], 0)
    return p > 0


def wrong(sample: TritonSample, case: Case, logits: Tensor, batch: SampleBatch) -> int:
    """Most tokens of a row that are kept or left out and should not be; or wrong greedy rows."""
    if batch.all_greedy:
        return int((sample(logits, batch) != logits.float().argmax(-1)).sum())
    if not batch.filtered:
        return 0
    cut = sample.cut(logits, batch)
    ids, worst = torch.arange(VOCABULARY, device="cuda"), 0
    tokens = sample(logits, batch)
    for row in range(min(len(logits), 4)):
        x, lowest = logits[row].float(), cut.logit_R[row]
        mask = (x > lowest) | ((x == lowest) & (ids <= cut.last_R[row]))
        worst = max(worst, int((mask != kept(logits[row], case)).sum()))
        assert mask[tokens[row]]
    return worst


def lines() -> Iterator[dict[str, Any]]:
    whole = "--all" in sys.argv
    dtypes = (torch.bfloat16, torch.float32) if whole else (torch.bfloat16,)
    prepare_all([None], dtypes)
    for case, dtype, rows in product(CASES, dtypes, ALL_ROWS if whole else ROWS):
        copies = [logits_of(case, rows, dtype) for _ in range(COPIES)]
        batch = batch_of(case, rows)
        yield {
            "case": case.name,
            "dtype": str(dtype).removeprefix("torch."),
            "rows": rows,
            "us": round(microseconds(sampler(None), copies, batch), 1),
            **({"torch_us": round(eager_microseconds(copies[0], batch), 1)} if whole else {}),
            "wrong": wrong(sampler(None), case, copies[0], batch),
        }


def variant_lines() -> Iterator[dict[str, Any]]:
    cuts = [Variant("cut", *each) for each in CUTS]
    sums = [Variant("summarize", *each) for each in SUMS]
    prepare_all([*cuts, *sums], (torch.bfloat16,))
    for variants, cases in ((cuts, CASES[2:6]), (sums, CASES[:2])):
        for case, rows in product(cases, (1, 64, 256)):
            copies = [logits_of(case, rows, torch.bfloat16) for _ in range(2)]
            for variant in variants:
                us = round(microseconds(sampler(variant), copies, batch_of(case, rows)), 1)
                yield {"case": case.name, "rows": rows, **variant._asdict(), "us": us}


def main() -> None:
    torch.manual_seed(0)
    found = []
    for line in variant_lines() if "--cut" in sys.argv else lines():
        print(*(f"{name} {value}" for name, value in line.items()), sep=" | ", flush=True)
        found.append(line)
    if "OUT" in os.environ:
        Path(os.environ["OUT"], "sweep_sample.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
