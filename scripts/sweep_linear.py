"""Times dense products of few rows in CUDA graphs, and says which configuration is best for each.

Weights rotate through more memory than the cache holds. Each configuration is checked against
float32. Prints the best per shape and number of rows, what a model's products take together, and
the table as `configs/linear.json` has it, which also goes into the folder $OUT if that is set.

    python scripts/sweep_linear.py [entries]

entries: of each output's weights, asked for while the kernel in front still runs; a power of two
from 64 on; needs sm_90. 0, as if left out, does not overlap kernels.
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch
from replays import per_launch
from side_by_side import compile_jobs
from torch import Tensor
from torch.nn.functional import linear

from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.linear import PackedLinear, TritonLinear
from jackfield.plugins.kernels.triton.support import TritonConfig

DEVICE = torch.device("cuda")
ENOUGH = 256 << 20
"""Bytes of weights that a graph walks over at least: four times the cache."""
LAUNCHES = 16
"""Of a graph at least."""
ROUNDS = 3
WORKERS = 14
MOST = 12
"""Configurations that are tried per shape and class of rows."""
SHARED = 220 << 10
"""Bytes that the stages of a tile may take."""
SUMS = 8
"""Sums of an input that a thread keeps without tensor cores: rows times outputs."""
PROCESSORS = 132
ROWS = (1, 2, 4, 8, 16, 20, 32, 64)
TOLERANCE = 2e-2
LAYERS = {"0.6B": 28, "8B": 36}
SHAPES = {
    "0.6B": [(4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072), (151936, 1024)],
    "8B": [(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288), (151936, 4096)],
}
"""Outputs and inputs of qkv, o, gate and up, down; and the head, which is there once."""
VECTORS = [
    # outputs, warps, unrolled
    (4, 4, 1), (2, 4, 1), (4, 2, 2), (8, 4, 1), (4, 1, 4), (2, 8, 1), (8, 2, 1), (2, 4, 2),
    (2, 2, 2), (4, 4, 3), (4, 4, 2), (2, 2, 4), (8, 1, 2),
]  # fmt: skip
TILES = [
    # outputs, block, parts, warps, stages
    (16, 64, 4, 4, 4), (32, 64, 4, 4, 4), (16, 64, 8, 8, 4), (16, 128, 4, 4, 3), (64, 128, 1, 4, 4),
    (64, 256, 1, 4, 3), (128, 64, 1, 4, 5), (128, 128, 1, 8, 3),
]  # fmt: skip
Config = Mapping[str, int]
Shape = tuple[int, int]


class Timing(NamedTuple):
    """Microseconds of one product; an empty configuration is torch's."""

    config: Config
    time: float
    right: bool = True


def vector(outputs: int, warps: int, unrolled: int, ahead: int) -> Config:
    return {
        "OUTPUTS": outputs, "UNROLL": unrolled, "AHEAD": ahead, "num_warps": warps, "num_stages": 1
    }  # fmt: skip


def tile(base: tuple[int, ...], splits: int, ahead: int) -> Config:
    outputs, block, parts, warps, stages = base
    return {
        "OUTPUTS": outputs, "BLOCK": block, "PARTS": parts, "SPLITS": splits, "AHEAD": ahead,
        "num_warps": warps, "num_stages": stages,
    }  # fmt: skip


def candidates(rows: int, shape: Shape, ahead: int) -> list[Config]:
    """rows: the class, a power of two. Up to 4 rows may do with or without tensor cores."""
    tiles = list(tiles_of(max(rows, 8), shape, ahead))
    vectors = list(vectors_of(rows, shape, ahead)) if rows <= 4 else []
    vectors = vectors[: MOST - 3 if rows < 4 else MOST // 2]
    return [*vectors, *tiles[: MOST - len(vectors)]]


def vectors_of(rows: int, shape: Shape, ahead: int) -> Iterator[Config]:
    outputs, inputs = shape
    for group, warps, unrolled in VECTORS:
        fits = inputs % (warps * 256 * unrolled) == 0
        if fits and rows * group <= SUMS and outputs // group >= PROCESSORS:
            yield vector(group, warps, unrolled, ahead)


def tiles_of(rows: int, shape: Shape, ahead: int) -> Iterator[Config]:
    """The most promising first."""
    found = []
    for base in TILES:
        group, block, parts, _, stages = base
        if (group + rows) * block * parts * 2 * stages > SHARED:
            continue
        for splits in (1, 2, 4, 8):
            programs = -(-shape[0] // group) * splits
            few = programs >= 60 and (splits == 1 or programs <= 4 * PROCESSORS)
            if few and shape[1] >= block * parts * splits:
                found.append((guess(rows, shape, group, splits), base, splits))
    for _, base, splits in sorted(found, key=lambda each: each[0]):
        yield tile(base, splits, ahead)


def guess(rows: int, shape: Shape, group: int, splits: int) -> float:
    """Microseconds: weights from memory, rows from the cache, and a meeting of the programs."""
    programs = -(-shape[0] // group) * splits
    weights = shape[0] * shape[1] * 2 / 4.2e6
    again = weights * rows / group * 0.7
    return (weights + again) / min(programs / PROCESSORS, 1) ** 0.7 + (splits > 1) * 1.2


class Fixed:
    """A table with one entry."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def find(self, rows: int, weight_OI: Tensor) -> Config:
        return self.config


def product(config: Config) -> Callable[[Tensor, PackedLinear], Tensor]:
    if not config:
        return lambda x, packed: linear(x, packed.weight_OI)
    operation = TritonLinear(TritonConfig())
    operation._configs = Fixed(config)  # type: ignore[assignment]
    return operation


def weights_of(shape: Shape) -> list[PackedLinear]:
    count = -(-ENOUGH // (shape[0] * shape[1] * 2))
    pack = TritonLinear(TritonConfig()).pack
    return [pack(random(shape) * shape[1] ** -0.5, None) for _ in range(count)]


def random(shape: Shape) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)


def compile_one(rows: int, inputs: int, config: Config) -> None:
    """In a process of its own, so that the compiled kernel is on the disk afterwards."""
    packed = TritonLinear(TritonConfig()).pack(random((256, inputs)), None)
    product(config)(random((rows, inputs)), packed)


def compile_all(ahead: int) -> None:
    jobs = set()
    for shape in chain.from_iterable(SHAPES.values()):
        for rows in sorted(set(map(power_of_two, ROWS))):
            for config in candidates(rows, shape, ahead):
                # Tiles are the same for all widths, and for up to 8 rows.
                tiles = "PARTS" in config
                job = (max(rows, 8), 4096) if tiles else (rows, shape[1])
                jobs.add((*job, json.dumps(config)))
    found = {job: (*job[:2], json.loads(job[2])) for job in sorted(jobs)}
    compile_jobs(compile_one, found, WORKERS)


def measure(config: Config, x: Tensor, weights: list[PackedLinear], want: Tensor) -> Timing:
    multiply = product(config)
    walk = weights * -(-LAUNCHES // len(weights))

    def body() -> None:
        for packed in walk:
            multiply(x, packed)

    first = multiply(x, weights[0])
    time = per_launch(body, len(walk), ROUNDS)
    again = multiply(x, weights[0])
    right = (first.float() - want).abs() <= TOLERANCE * (1 + want.abs())
    return Timing(config, time, bool(right.all()) and torch.equal(first, again))


def measure_all(shape: Shape, ahead: int) -> dict[int, list[Timing]]:
    """By number of rows; torch's is the first."""
    weights = weights_of(shape)
    x = random((max(ROWS), shape[1]))
    want = x.float() @ weights[0].weight_OI.float().t()
    found: dict[int, list[Timing]] = {}
    for rows in ROWS:
        found[rows] = []
        for config in ({}, *candidates(power_of_two(rows), shape, ahead)):
            try:
                timing = measure(config, x[:rows], weights, want[:rows])
            except Exception as problem:  # one that does not fit must not hide the others
                print(f"{shape} {rows} {config}: {problem}", file=sys.stderr)
                continue
            if not timing.right:
                print(f"{shape} {rows} {config}: WRONG", file=sys.stderr)
            found[rows].append(timing)
    return found


def own_best(timings: list[Timing]) -> Timing:
    own = [timing for timing in timings if timing.config and timing.right]
    return min(own, key=lambda timing: timing.time, default=Timing({}, float("inf")))


def show(shape: Shape, found: dict[int, list[Timing]]) -> None:
    print(f"\n{shape[0]} x {shape[1]}")
    for rows, timings in found.items():
        best, torch_time = own_best(timings), timings[0].time
        speed = shape[0] * shape[1] * 2 / best.time / 1e6
        print(
            f"  {rows:3} rows {best.time:7.2f} us {speed:5.2f} TB/s  torch {torch_time:7.2f} us  "
            f"{torch_time / best.time:4.2f}  {dict(best.config)}"
        )
    sys.stdout.flush()


def best_of_class(found: dict[int, list[Timing]], rows: int) -> Config:
    """The least sum over all numbers of rows in the class; torch's is empty."""
    sums: dict[str, float] = defaultdict(float)
    members = [timings for number, timings in found.items() if power_of_two(number) == rows]
    for timings in members:
        for timing in timings:
            sums[json.dumps(timing.config)] += timing.time if timing.right else float("inf")
    complete = [
        name
        for name in sums
        if all(any(json.dumps(t.config) == name for t in timings) for timings in members)
    ]
    config: Config = json.loads(min(complete, key=sums.__getitem__))
    return config


def table_of(results: dict[Shape, dict[int, list[Timing]]]) -> dict[str, Config]:
    classes = sorted(set(map(power_of_two, ROWS)))
    return {
        f"{rows}_{shape[0]}_{shape[1]}": best_of_class(found, rows)
        for shape, found in results.items()
        for rows in classes
    }


def as_json(table: Mapping[str, Config], architecture: str) -> str:
    """One line an entry."""
    lines = [
        f'  "{name}": {{"any": {{"{architecture}": {json.dumps(config)}}}}}'
        for name, config in table.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def show_models(results: dict[Shape, dict[int, list[Timing]]], table: Mapping[str, Config]) -> None:
    for model, shapes in SHAPES.items():
        counts = [*[LAYERS[model]] * (len(shapes) - 1), 1]
        print(f"\n{model}: all products of a step")
        for rows in ROWS:
            own = chosen = others = 0.0
            for count, shape in zip(counts, shapes, strict=True):
                timings = results[shape][rows]
                entry = table[f"{power_of_two(rows)}_{shape[0]}_{shape[1]}"]
                own += count * own_best(timings).time / 1000
                chosen += count * next(t.time for t in timings if t.config == entry) / 1000
                others += count * timings[0].time / 1000
            print(
                f"  {rows:3} rows  own best {own:6.3f} ms  by the table {chosen:6.3f} ms  "
                f"torch {others:6.3f} ms  {others / chosen:4.2f}"
            )


def main(ahead: int = 0) -> None:
    torch.manual_seed(0)
    compile_all(ahead)
    results = {}
    for shape in chain.from_iterable(SHAPES.values()):
        results[shape] = measure_all(shape, ahead)
        show(shape, results[shape])
        torch.cuda.empty_cache()
    table = table_of(results)
    show_models(results, table)
    major, minor = torch.cuda.get_device_capability()
    text = as_json(table, f"sm_{major}{minor}")
    print(f"\n{text}", end="")
    folder = os.environ.get("OUT")
    if folder:
        Path(folder, "linear.json").write_text(text)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
