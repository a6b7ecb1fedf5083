"""Times variants of norms, gates and of what prepares queries and keys, in CUDA graphs.

Rows are those of a step of decodes and of one of prompts, widths those of two Qwen3 models. Kernels
follow each other as in a model, each on tensors that the one before does not touch. Prints a table
for each case, the fastest first.

    python scripts/sweep_elementwise.py [part of a case's name]
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch
from replays import captured, replays

from jackfield.core.api.kernel import HeadNorms, KvLayer, Projected
from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.qk_norm_rope_write import TritonQkNormRopeWrite
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul
from jackfield.plugins.kernels.triton.support import TritonConfig

DEVICE, TYPE = torch.device("cuda"), torch.bfloat16
ROWS = (20, 64, 128, 256, 8192)
CALLS, ROUNDS, WORKERS = 24, 7, 12
SETS = 4
"""Of tensors that calls take in turn."""
Config = Mapping[str, int]


class Shape(NamedTuple):
    """Of a model."""

    name: str
    hidden: int
    inner: int
    heads: int
    kv_heads: int


SHAPES = (Shape("0.6b", 1024, 3072, 16, 8), Shape("8b", 4096, 12288, 32, 8))


class Case(NamedTuple):
    """kind: of kernel."""

    kind: str
    shape: Shape
    rows: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.shape.name} {self.rows} rows"


class Fixed:
    """A table in which all classes have the same entry."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> Config:
        return self.config


def variants(case: Case) -> Iterator[Config]:
    if case.kind == "add_rms_norm":
        for warps in (2, 4, 8, 16):
            yield {"ROWS": 1, "num_warps": warps, "num_stages": 1}
        yield {"ROWS": 2, "num_warps": 4, "num_stages": 1}
    elif case.kind == "silu_mul":
        for block, warps in ((512, 2), (512, 4), (1024, 2), (1024, 4), (2048, 4), (2048, 8)):
            yield {"BLOCK": block, "num_warps": warps, "num_stages": 1}
    else:
        for heads, warps in ((2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (16, 2), (16, 4), (32, 4)):
            yield {"HEADS": heads, "num_warps": warps, "num_stages": 1}


def calls(case: Case, config: Config) -> list[Callable[[], Any]]:
    """One for each set of tensors."""
    make = {"add_rms_norm": _add, "silu_mul": _gate, "qk_norm_rope_write": _qk}[case.kind]
    return [make(case, config) for _ in range(SETS)]


def _add(case: Case, config: Config) -> Callable[[], Any]:
    operation = TritonAddRmsNorm(TritonConfig())
    operation._configs = Fixed(config)  # type: ignore[assignment]
    x, residual = (random(case.rows, case.shape.hidden) for _ in range(2))
    weight = random(case.shape.hidden)
    return lambda: operation(x, residual, weight, 1e-6)


def _gate(case: Case, config: Config) -> Callable[[], Any]:
    operation = TritonSiluMul(TritonConfig())
    operation._configs = Fixed(config)  # type: ignore[assignment]
    both = random(case.rows, 2 * case.shape.inner)
    return lambda: operation(both)


def _qk(case: Case, config: Config) -> Callable[[], Any]:
    operation = TritonQkNormRopeWrite(TritonConfig())
    operation._configs = Fixed(config)  # type: ignore[assignment]
    shape, rows = case.shape, case.rows
    pools = {name: random(rows // 4 + 1, shape.kv_heads, 16, 128) for name in "kv"}
    layer = KvLayer(pools, 128**-0.5, None, None, None)
    qkv = random(rows, shape.heads + 2 * shape.kv_heads, 128)
    turned = torch.rand(2, rows, 64, device=DEVICE)
    norms = HeadNorms(random(128), random(128), 1e-6)
    projected = Projected(qkv, shape.heads, shape.kv_heads, turned[0], turned[1], norms)
    slots = torch.randperm(rows * 4, device=DEVICE)[:rows]
    return lambda: operation(projected, layer, slots)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=TYPE, device=DEVICE)


def timed(case: Case, config: Config) -> float:
    """Microseconds of a call: the median over replays."""
    chosen = calls(case, config)

    def body() -> None:
        for index in range(CALLS):
            chosen[index % SETS]()

    return replays(captured(body), ROUNDS)[ROUNDS // 2] / CALLS


def compile_one(case: Case, config: Config) -> None:
    """What is compiled is on the disk afterwards."""
    calls(case._replace(rows=20), config)[0]()


def cases_of(part: str) -> list[Case]:
    kinds = ("add_rms_norm", "silu_mul", "qk_norm_rope_write")
    every = (Case(kind, shape, rows) for kind in kinds for shape in SHAPES for rows in ROWS)
    return [case for case in every if part in case.name]


def main(part: str = "") -> None:
    cases = cases_of(part)
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        jobs = [
            pool.submit(compile_one, case, config)
            for case in cases
            if case.rows == ROWS[0]
            for config in variants(case)
        ]
        for job in jobs:
            job.result()
    for case in cases:
        found = sorted((timed(case, config), str(dict(config))) for config in variants(case))
        print(case.name)
        for microseconds, config in found[:5]:
            print(f"  {microseconds:7.2f} us  {config}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
