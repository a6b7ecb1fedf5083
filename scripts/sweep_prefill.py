"""Times variants of the prefill kernel and the dense route; says which is best for each case.

Kernels run in CUDA graphs; dense calls as they come. Rows of each result are checked against
float32. Of dense calls it is told, too, how long the host takes to launch them, and whether it
waits for the device on the way. Then the pass that combines results is timed by itself. Prints
tables, and writes `sweep_prefill.json` into the folder $OUT if that is set.

    python scripts/sweep_prefill.py [part of a case's name]
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from jackfield.core.api.kernel import AttnBatch, KvLayer, SliceExtent
from jackfield.plugins.kernels.triton.cudnn import WAYS, trial
from jackfield.plugins.kernels.triton.dense_prefill import NEVER, DensePrefill, Limits
from jackfield.plugins.kernels.triton.gather import PARTS, Attended, combine, combine_kept
from jackfield.plugins.kernels.triton.prefill import PrefillStep, TritonPrefill

DEVICE, DTYPE = torch.device("cuda"), torch.bfloat16
HEAD_DIM, BLOCK = 128, 16
SCALE = HEAD_DIM**-0.5
HEADS = ((16, 8), (32, 8))
ROUNDS = 5
WORKERS = 12
SAMPLE = 16
"""Rows that are checked."""
TOLERANCE = 2e-2
Config = Mapping[str, int]


class Case(NamedTuple):
    """So many slices of `new` tokens, each on `past` positions. rows: the class of its tiles."""

    name: str
    slices: int
    new: int
    past: int
    rows: int = 128

    def flop(self, heads: int) -> float:
        seen = self.new * self.past + self.new * (self.new + 1) / 2
        return 4.0 * self.slices * heads * HEAD_DIM * seen


CASES = (
    Case("16 x 512", 16, 512, 0),
    Case("4 x 2k", 4, 2048, 0),
    Case("8k", 1, 8192, 0),
    Case("32k", 1, 32768, 0),
    Case("8k on 24k", 1, 8192, 24576),
    Case("7936 on 23808", 1, 7936, 23808),
    Case("7k on 21k", 1, 7168, 21504),
    Case("60 x 128 on 2k", 60, 128, 2048),
    Case("24 x 24 on 4k", 24, 24, 4096, 64),
    Case("1 x 24 on 16k", 1, 24, 16384, 64),
    Case("1 x 4 on 16k", 1, 4, 16384, 16),
)
TILES = {
    128: [(128, 64, 8, 3), (128, 64, 8, 4), (128, 64, 4, 3), (128, 128, 8, 2), (128, 128, 8, 3),
          (128, 32, 8, 4), (64, 64, 4, 3)],
    64: [(64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 4), (64, 128, 4, 2), (64, 64, 8, 3)],
    16: [(16, 64, 4, 4), (16, 64, 4, 3), (16, 128, 4, 3), (16, 32, 4, 4), (16, 64, 8, 4)],
}  # fmt: skip
"""BLOCK_M, BLOCK_N, warps, stages by class."""
ROUTES = {
    "ranges of 8k": Limits(1024, 1024, 8192, 8192),
    "of up to 24k": Limits(1024, 1024, 8192, 24576),
    "one range": Limits(1024, 1024, 1024, 32768),
    "steps of 256": Limits(1024, 256, 8192, 24576),
}
BUSY = 100_000_000
"""Cycles for which the device is kept busy while the host launches: some 50 ms."""


class Fixed:
    """One configuration in the place of the table."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> Config:
        return self._config


class Tiled(TritonPrefill):
    """The kernel alone, with one configuration."""

    def __init__(self, config: Config) -> None:
        super().__init__(DensePrefill(limits=NEVER))
        self._configs: Any = Fixed(config)


class Scene:
    """Sequences whose blocks are scattered over a pool."""

    def __init__(self, case: Case, heads: tuple[int, int]) -> None:
        self.case, self.heads = case, heads
        length = case.past + case.new
        blocks = -(-length // BLOCK)
        shape = (case.slices * blocks, heads[1], BLOCK, HEAD_DIM)
        pool = {name: torch.randn(shape, device=DEVICE, dtype=DTYPE) for name in "kv"}
        self.layer = KvLayer(pool, SCALE)
        order = torch.randperm(shape[0], device=DEVICE, dtype=torch.int32)
        self.tables = order.view(case.slices, blocks)
        tokens = case.slices * case.new
        merged = torch.randn(tokens, heads[0] + 2 * heads[1], HEAD_DIM, device=DEVICE, dtype=DTYPE)
        self.q = merged[:, : heads[0]]
        self.out = torch.empty(tokens, heads[0], HEAD_DIM, device=DEVICE, dtype=DTYPE)

    def batch(self) -> AttnBatch:
        new, length = self.case.new, self.case.past + self.case.new
        begins = range(0, self.case.slices * new, new)
        extents = tuple(SliceExtent(begin, begin + new, length) for begin in begins)
        nothing = torch.empty(0, device=DEVICE)
        return AttnBatch(nothing, nothing, self.tables, nothing, 0, new, length, extents)

    def worst(self) -> float:
        """The largest error of some rows against float32."""
        rows = torch.randint(len(self.q), (SAMPLE,)).tolist()
        return max(self._error(row) for row in rows)

    def _error(self, row: int) -> float:
        index, offset = divmod(row, self.case.new)
        seen = self.case.past + offset + 1
        table = self.tables[index].long()
        k, v = (
            self.layer.tensors[name][table].transpose(0, 1).flatten(1, 2)[:, :seen].float()
            for name in "kv"
        )
        q = self.q[row].view(self.heads[1], -1, HEAD_DIM).float()
        wanted = (q @ k.transpose(1, 2) * SCALE).softmax(-1) @ v
        return float((wanted - self.out[row].view_as(wanted).float()).abs().max())


def timed(run: Callable[[], object], calls: int = 1) -> float:
    """Seconds of a call, by the device's clock."""
    found = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3 / calls)
    return median(found)


def graphed(run: Callable[[], object]) -> float:
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    return timed(graph.replay, 3)


def launched(run: Callable[[], object]) -> float:
    """As they come, after telling what that costs the host."""
    idle, busy = median(hosted(run, 0) for _ in range(ROUNDS)), hosted(run, BUSY)
    waits = busy > max(4 * idle, 0.02)
    print(f"    the host launches it in {idle * 1e6:.0f} us"
          f"{', and waits for the device' if waits else ''}")  # fmt: skip
    return timed(run)


def hosted(run: Callable[[], object], cycles: int) -> float:
    """Seconds of the host, while the device has so many cycles to do first."""
    torch.cuda.synchronize()
    torch.cuda._sleep(cycles)
    began = perf_counter()
    run()
    seconds = perf_counter() - began
    torch.cuda.synchronize()
    return seconds


def configs(case: Case) -> Iterator[Config]:
    for block_m, block_n, warps, stages in TILES[case.rows]:
        for pack in (0, 1) if case.rows == 128 else (0,):
            yield {
                "BLOCK_M": block_m,
                "BLOCK_N": block_n,
                "PACK": pack,
                "num_warps": warps,
                "num_stages": stages,
            }


def measure(prefill: TritonPrefill, scene: Scene, how: Callable[..., float]) -> dict[str, Any]:
    step: PrefillStep = prefill.prepare(scene.batch())
    scene.out.fill_(float("nan"))

    def run() -> None:
        prefill.forward(scene.q, scene.layer, step, scene.out)

    began = perf_counter()
    run()
    torch.cuda.synchronize()
    first = perf_counter() - began
    wrong = scene.worst()
    seconds = how(run)
    rate = scene.case.flop(scene.heads[0]) / seconds / 1e12
    right = wrong <= TOLERANCE
    return {"us": seconds * 1e6, "tflops": rate, "first_s": first, "error": wrong, "right": right}


def attempt(prefill: TritonPrefill, scene: Scene, how: Callable[..., float]) -> dict[str, Any]:
    """What does not fit the device is a result too."""
    try:
        return measure(prefill, scene, how)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error)[:120]}", "right": False}


def compile_only(heads: tuple[int, int], rows: int, config: Config, divided: bool) -> None:
    """In a process of its own: leaves the kernel in the cache on disk."""
    past = 2048 if divided else 0
    case = Case("", 1, rows, past, rows) if divided else Case("", 300, rows, past, rows)
    scene = Scene(case, heads)
    prefill = Tiled(config)
    prefill.forward(scene.q, scene.layer, prefill.prepare(scene.batch()), scene.out)
    torch.cuda.synchronize()


def compile_all(cases: list[Case]) -> None:
    wanted = {
        (heads, case.rows, tuple(config.items()), divided)
        for heads in HEADS
        for case in cases
        for config in configs(case)
        for divided in (False, True)
    }
    began = perf_counter()
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        futures = [pool.submit(compile_only, h, r, dict(c), d) for h, r, c, d in wanted]
        failed = sum(future.exception() is not None for future in futures)
    print(f"{len(wanted)} kernels in {perf_counter() - began:.1f} s, {failed} failed", flush=True)


def describe(config: Config) -> str:
    return (
        f"{config['BLOCK_M']}x{config['BLOCK_N']} {config['num_warps']} warps "
        f"{config['num_stages']} stages {'one head' if config['PACK'] else 'group'}"
    )


def sweep(case: Case, heads: tuple[int, int]) -> dict[str, Any]:
    scene = Scene(case, heads)
    found: dict[str, Any] = {}
    for config in configs(case):
        found[describe(config)] = attempt(Tiled(config), scene, graphed)
    if case.new >= 2048:
        for name, limits in ROUTES.items():
            dense = DensePrefill(limits=limits)
            found[f"dense, {name}"] = attempt(TritonPrefill(dense), scene, launched)
            for note in dense.notes:
                print("   ", note)
    show(f"{case.name}, {heads[0]}/{heads[1]} heads", found)
    return found


def show(title: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    print(f"\n{title}")
    for name, one in sorted(found.items(), key=lambda item: item[1].get("us", 1e12)):
        if "failed" in one:
            print(f"  {name:40} {one['failed']}")
            continue
        note = "" if one["right"] else f"   WRONG by {one['error']:g}"
        print(f"  {name:40} {one['us']:10.1f} us {one['tflops']:8.1f} TFLOP/s"
              f"   first {one['first_s']:6.2f} s{note}")  # fmt: skip
    print(flush=True, end="")


def by_flag(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Any:
    """The public function with its flag for groups; there is no logarithm."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=causal, scale=scale, enable_gqa=True
        )


def probe(heads: tuple[int, int]) -> dict[str, Any]:
    """Which ways to give grouped heads to cuDNN are right, and how fast they are."""
    print(f"\ncuDNN {torch.backends.cudnn.version()}, {heads[0]}/{heads[1]} heads")
    found: dict[str, Any] = {}
    for name, attend in {**WAYS, "enable_gqa": by_flag}.items():
        reason = None
        if name in WAYS:
            reason = trial(attend, *heads, HEAD_DIM, DTYPE, DEVICE)
        speeds = {} if reason else dict(speeds_of(attend, heads))
        found[name] = {"reason": reason, **speeds}
        print(f"  {name:12} {reason or 'right'} {speeds}", flush=True)
    return found


def speeds_of(attend: Any, heads: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """TFLOP/s, and the seconds of the first call of a shape, where a plan is made."""
    for rows, keys in (
        (8192, 8192), (7168, 7168), (9216, 9216), (32768, 32768),
        (8192, 16384), (8192, 24576), (7168, 6144),
    ):  # fmt: skip
        causal = rows == keys
        merged = torch.randn(rows, heads[0] + 2 * heads[1], HEAD_DIM, device=DEVICE, dtype=DTYPE)
        q = merged[:, : heads[0]].transpose(0, 1)
        k, v = torch.randn(2, heads[1], keys, HEAD_DIM, device=DEVICE, dtype=DTYPE)
        began = perf_counter()
        name = f"{rows}x{keys}{' causal' if causal else ''}"
        try:
            attend(q, k, v, causal, SCALE)
            torch.cuda.synchronize()
            first = perf_counter() - began
            seconds = timed(lambda: attend(q, k, v, causal, SCALE))  # noqa: B023
        except RuntimeError as error:
            yield name, str(error).splitlines()[0][:100]
            continue
        flop = 4.0 * rows * keys * heads[0] * HEAD_DIM / (2 if causal else 1)
        yield name, f"{flop / seconds / 1e12:.0f} TFLOP/s, first {first:.3f} s"


def combined(heads: int) -> dict[str, Any]:
    """The pass that combines results of 8192 rows; GB/s of what it must read and write."""
    rows = 8192
    shape = (rows, heads, HEAD_DIM)
    parts: list[Attended] = [
        (
            torch.randn(shape, device=DEVICE, dtype=DTYPE).transpose(0, 1),
            torch.randn(heads, rows, device=DEVICE),
        )
        for _ in range(PARTS)
    ]
    out = torch.empty(shape, device=DEVICE, dtype=DTYPE)
    result = out.numel() * out.element_size()
    found: dict[str, Any] = {}
    for count in range(1, PARTS + 1):
        some = parts[:count]
        seconds = graphed(lambda: combine(some, 0, out))  # noqa: B023
        found[f"{count} results"] = speed(seconds, (count + 1) * result)
    seconds = graphed(lambda: combine_kept(parts))
    found[f"{PARTS} results, kept"] = speed(seconds, (PARTS + 2) * result)
    seconds = graphed(lambda: out.transpose(0, 1).copy_(parts[0][0]))
    found["torch's copy"] = speed(seconds, 2 * result)
    print(f"\nCombining results, {heads} heads")
    for name, one in found.items():
        print(f"  {name:20} {one['us']:8.1f} us {one['gbs']:8.0f} GB/s", flush=True)
    return found


def speed(seconds: float, size: int) -> dict[str, float]:
    return {"us": seconds * 1e6, "gbs": size / seconds / 1e9}


def best(results: Mapping[str, Mapping[str, Any]]) -> None:
    print("\nBest of each case")
    for name, found in results.items():
        right = {key: one for key, one in found.items() if one["right"]}
        if right:
            winner = min(right, key=lambda key: right[key]["us"])
            print(f"  {name:32} {winner:40} {right[winner]['tflops']:8.1f} TFLOP/s")


def main(part: str = "") -> None:
    torch.manual_seed(0)
    cases = [case for case in CASES if part in case.name]
    compile_all(cases)
    probes = {str(heads): probe(heads) for heads in HEADS}
    passes = {str(heads): combined(heads[0]) for heads in HEADS}
    results = {
        f"{case.name}, {heads[0]}/{heads[1]}": sweep(case, heads)
        for case in cases
        for heads in HEADS
    }
    best(results)
    folder = os.environ.get("OUT")
    if folder:
        text = json.dumps({"probes": probes, "passes": passes, "results": results}, indent=1)
        Path(folder, "sweep_prefill.json").write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:2])
