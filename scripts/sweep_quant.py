"""Times products with quantized weights in CUDA graphs, and says which configuration is best.

Weights rotate through more memory than the cache holds. Each configuration is checked against
float32. Prints, per shape, kind and number of rows, the best beside cuBLAS in bfloat16 from the
same run, what a model's products take together, and the table as `configs/quant.json` has it. All
timings go into the folder $OUT if that is set.

    python scripts/sweep_quant.py [seconds]

seconds: after which nothing more is measured, compiling not counted. What matters most comes first:
4 bits, one row and 16 rows.
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from replays import per_launch
from side_by_side import compile_jobs
from torch import Tensor
from torch.nn.functional import linear

from jackfield.core.api.quant import QuantKind
from jackfield.plugins.kernels.triton.quant_matmul import (
    TritonQuantMatmul,
    class_of,
    dense,
    label_of,
)
from jackfield.plugins.kernels.triton.quant_pack import (
    AT_ONCE,
    ROW_PARTS,
    SIDE,
    PackedQuant,
    values_of,
)
from jackfield.plugins.kernels.triton.support import TritonConfig

DEVICE = torch.device("cuda")
ENOUGH = 256 << 20
"""Bytes of weights that a graph walks over at least: four times the cache."""
LAUNCHES = 16
"""Of a graph at least."""
ROUNDS = 3
WORKERS = 14
PROCESSORS = 132
ROWS = (1, 4, 16, 32, 64)
TOLERANCE = 2e-2
LAYERS = 36
SHAPES = [(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288)]
"""Outputs and inputs of qkv, o, gate and up, down of Qwen3-8B."""
AHEAD = 256
"""Lines of each 16 outputs that are asked for before anything is loaded, where any are."""
TRIED_AHEAD = 3
"""The first ones of a class, which are also tried so."""
WARPS = {
    # by class: tiles of a warp, warps abreast, warps in parts, blocks, rows of a program
    1: [(1, 1, 8, 1, 8), (1, 1, 16, 1, 8), (1, 1, 4, 1, 8), (2, 1, 8, 1, 8),
        (1, 1, 4, 2, 8), (2, 1, 4, 1, 8), (1, 1, 8, 2, 8), (1, 2, 4, 1, 8),
        (2, 1, 2, 2, 8), (2, 1, 2, 1, 8), (1, 2, 2, 1, 8), (2, 1, 4, 2, 8),
        (1, 1, 8, 3, 8), (2, 1, 8, 2, 8), (1, 1, 4, 3, 8)],
    8: [(1, 1, 8, 1, 8), (1, 1, 16, 1, 8), (2, 1, 8, 1, 8), (2, 1, 4, 1, 8),
        (1, 1, 4, 2, 8)],
    16: [(1, 1, 8, 1, 16), (2, 1, 8, 1, 16), (2, 1, 4, 1, 16), (2, 2, 4, 1, 16),
         (1, 1, 16, 1, 16)],
    32: [(1, 1, 4, 1, 32), (2, 1, 4, 1, 32), (2, 2, 4, 1, 32), (1, 1, 8, 1, 32),
         (2, 2, 2, 1, 32)],
    64: [(2, 1, 4, 1, 32), (2, 2, 2, 1, 32), (2, 2, 4, 1, 32), (1, 1, 4, 1, 32), (1, 2, 2, 1, 32),
         (1, 1, 8, 1, 32)],
}  # fmt: skip
Config = Mapping[str, int]
Shape = tuple[int, int]


class Kind(NamedTuple):
    """group: 0 = all inputs. rows: outputs that share a scale."""

    name: str
    kind: QuantKind
    group: int
    zeros: bool = False
    rows: int = 1
    scale: torch.dtype = torch.float16

    @property
    def bits(self) -> int:
        return 4 if self.kind is QuantKind.INT4 else 8


KINDS = [
    Kind("int4 g128 zeros", QuantKind.INT4, 128, zeros=True),
    Kind("int4 g32 zeros", QuantKind.INT4, 32, zeros=True),
    Kind("int8 channel", QuantKind.INT8, 0),
    Kind("fp8 channel", QuantKind.FP8, 0, scale=torch.float32),
    Kind("fp8 block", QuantKind.FP8, 128, rows=128, scale=torch.float32),
]


PASSES = [
    (KINDS[:1], (1, 16)), (KINDS[:1], (4, 32, 64)), (KINDS[2:], (1,)), (KINDS[1:2], (1, 16)),
    (KINDS[2:], (16, 32, 64, 4)), (KINDS[1:2], (4, 32, 64)),
]  # fmt: skip
"""What is measured first: kinds, and numbers of rows."""


class Timing(NamedTuple):
    """Microseconds of one product; an empty configuration makes a plain matrix."""

    config: Config
    time: float
    right: bool = True


def candidates(rows: int, bits: int, shape: Shape) -> Iterator[Config]:
    """rows: the class."""
    outputs, inputs = shape
    for place, (tiles, abreast, parts, blocks, height) in enumerate(WARPS[rows]):
        if tiles == 2 and height > 16 and bits == 8:
            continue  # needs more registers than there are
        step = parts * blocks * AT_ONCE * 16 // bits
        warps = -(-outputs // (SIDE * tiles * abreast)) * parts * abreast * -(-rows // height)
        for splits in (1, 2) if rows >= 16 and warps <= 8 * PROCESSORS else (1,):
            for ahead in (0, AHEAD) if rows <= 8 and place < TRIED_AHEAD else (0,):
                if inputs >= step * splits:
                    yield {
                        "TILES": tiles, "PARTS": parts, "BLOCKS": blocks, "ROWS": height,
                        "SPLITS": splits, "AHEAD": ahead, "num_warps": parts * abreast,
                        "num_stages": 1,
                    }  # fmt: skip


class Fixed:
    """A table with one entry."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def find(self, *given: object) -> Config | None:
        return self.config or None


def product(config: Config) -> TritonQuantMatmul:
    operation = TritonQuantMatmul(TritonConfig())
    operation._configs = Fixed(config)  # type: ignore[assignment]
    return operation


def made_up(kind: Kind, shape: Shape) -> PackedQuant:
    """As if packed: random codes are random in any order."""
    outputs, inputs = shape
    blocks = inputs // (AT_ONCE * values_of(kind.kind))
    size = (outputs // SIDE, blocks, 2, 32, 16)
    codes = torch.randint(0, 256, size, dtype=torch.uint8, device=DEVICE)
    if kind.kind is QuantKind.FP8:
        codes &= 0xBF  # below two, and numbers
    table = (inputs // kind.group if kind.group else 1, -(-outputs // kind.rows))
    spread = {QuantKind.INT4: 4.6, QuantKind.INT8: 74.0, QuantKind.FP8: 0.6}[kind.kind]
    scales = (torch.rand(table, device=DEVICE) + 0.5) / (spread * inputs**0.5)
    zeros = torch.randint(0, 16, table, dtype=torch.uint8, device=DEVICE) if kind.zeros else None
    counters = torch.zeros(outputs // SIDE * ROW_PARTS, dtype=torch.int32, device=DEVICE)
    return PackedQuant(
        kind.kind, codes.view(torch.int16), scales.to(kind.scale), zeros, kind.group, kind.rows,
        shape, None, None, counters,
    )  # fmt: skip


def bytes_of(packed: PackedQuant) -> int:
    parts = (packed.words, packed.scales_GR, packed.zeros_GR)
    return sum(part.nbytes for part in parts if part is not None)


def random(shape: Shape) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)


def compile_one(kind: Kind, rows: int, config: Config) -> None:
    """In a process of its own, so that the compiled kernel is on the disk afterwards."""
    packed = made_up(kind, (256, 4096))
    product(config)(random((rows, 4096)), packed)
    dense(packed, 0, 256, torch.float32)


def compile_all() -> None:
    jobs = set()
    for place, kind in enumerate(KINDS):
        jobs.add((place, 16, "{}"))
        for shape in SHAPES:
            for rows in ROWS:
                for config in candidates(class_of(rows), kind.bits, shape):
                    jobs.add((place, class_of(rows), json.dumps(config)))
    found = {job: (KINDS[job[0]], job[1], json.loads(job[2])) for job in sorted(jobs)}
    compile_jobs(compile_one, found, WORKERS)


def measure(config: Config, x: Tensor, weights: list[PackedQuant], want: Tensor) -> Timing:
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


def plain_times(shape: Shape) -> dict[int, float]:
    """Of cuBLAS in bfloat16, by rows."""
    weights = [random(shape) for _ in range(-(-ENOUGH // (shape[0] * shape[1] * 2)))]
    walk = weights * -(-LAUNCHES // len(weights))
    x = random((max(ROWS), shape[1]))

    def body(rows: int) -> None:
        for weight in walk:
            linear(x[:rows], weight)

    found = {}
    for rows in ROWS:
        body(rows)
        found[rows] = per_launch(lambda rows=rows: body(rows), len(walk), ROUNDS)
    return found


def measure_all(
    kind: Kind, shape: Shape, classes: tuple[int, ...], until: float
) -> dict[int, list[Timing]]:
    """By number of rows; that of a plain matrix is the first. until: nothing is measured after."""
    one = made_up(kind, shape)
    weights = [one, *(made_up(kind, shape) for _ in range(-(-ENOUGH // bytes_of(one)) - 1))]
    x = random((max(ROWS), shape[1]))
    want = x.float() @ dense(one, 0, shape[0], torch.float32).t()
    found: dict[int, list[Timing]] = {}
    for rows in classes:
        found[rows] = []
        configs = [*candidates(class_of(rows), kind.bits, shape)]
        for config in [{}, *configs] if rows >= 16 else configs:
            if perf_counter() > until:
                break
            try:
                timing = measure(config, x[:rows], weights, want[:rows])
            except Exception as problem:  # one that does not fit must not hide the others
                print(f"{kind.name} {shape} {rows} {config}: {problem}", file=sys.stderr)
                continue
            if not timing.right:
                print(f"{kind.name} {shape} {rows} {config}: WRONG", file=sys.stderr)
            found[rows].append(timing)
    return found


def best_of(timings: list[Timing], plain: bool) -> Timing | None:
    own = [timing for timing in timings if timing.right and plain != bool(timing.config)]
    return min(own, key=lambda timing: timing.time, default=None)


def show(
    kind: Kind, shape: Shape, found: dict[int, list[Timing]], plain: Mapping[int, float]
) -> None:
    print(f"\n{kind.name}, {shape[0]} x {shape[1]}")
    size = bytes_of(made_up(kind, shape))
    for rows, timings in found.items():
        for label in ("tiles", "plain"):
            best = best_of(timings, label == "plain")
            if best is not None:
                print(
                    f"  {rows:3} rows {label:6} {best.time:7.2f} us {size / best.time / 1e6:5.2f} "
                    f"TB/s  cuBLAS {plain[rows]:7.2f} us  {plain[rows] / best.time:4.2f}  "
                    f"{dict(best.config)}"
                )
    sys.stdout.flush()


Results = dict[tuple[Kind, Shape], dict[int, list[Timing]]]


def table_of(results: Results) -> dict[str, Config]:
    """Kinds of one label share an entry: the least sum of times in relation to the best."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (kind, shape), found in results.items():
        for rows, timings in found.items():
            if not timings:
                continue
            label = label_of(kind.kind, kind.group)
            name = f"{label}_{class_of(rows)}_{shape[0]}_{shape[1]}"
            best = min((t.time for t in timings if t.right), default=1.0)
            for timing in timings:
                text = json.dumps(timing.config)
                sums[name][text] += timing.time / best if timing.right else float("inf")
                counts[name][text] += 1
    table: dict[str, Config] = {}
    for name, found_sums in sums.items():
        most = max(counts[name].values())
        complete = [text for text in found_sums if counts[name][text] == most]
        table[name] = json.loads(min(complete, key=found_sums.__getitem__))
    return table


def as_json(table: Mapping[str, Config], architecture: str) -> str:
    """One line an entry."""
    lines = [
        f'  "{name}": {{"any": {{"{architecture}": {json.dumps(config)}}}}}'
        for name, config in table.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def show_models(
    results: Results, plain: Mapping[Shape, Mapping[int, float]], table: Mapping[str, Config]
) -> None:
    """Leaves out what has not been measured in all shapes."""
    print("\n8B: the products of all layers of a step")
    for kind in KINDS:
        size = sum(LAYERS * bytes_of(made_up(kind, shape)) for shape in SHAPES)
        for rows in ROWS:
            times = [
                time_of(results.get((kind, shape), {}), kind, rows, shape, table)
                for shape in SHAPES
            ]
            if not all(times):
                continue
            chosen = LAYERS * sum(filter(None, times)) / 1000
            others = LAYERS * sum(plain[shape][rows] for shape in SHAPES) / 1000
            print(
                f"  {kind.name:16} {rows:3} rows  by the table {chosen:6.3f} ms "
                f"{size / chosen / 1e9:5.2f} TB/s  cuBLAS {others:6.3f} ms  {others / chosen:4.2f}"
            )


def time_of(
    found: Mapping[int, list[Timing]],
    kind: Kind,
    rows: int,
    shape: Shape,
    table: Mapping[str, Config],
) -> float | None:
    """Of the table's entry."""
    label = label_of(kind.kind, kind.group)
    entry = table.get(f"{label}_{class_of(rows)}_{shape[0]}_{shape[1]}")
    return next((timing.time for timing in found.get(rows, []) if timing.config == entry), None)


def as_record(kind: Kind, shape: Shape, rows: int, timing: Timing) -> dict[str, object]:
    return {"kind": kind.name, "shape": shape, "rows": rows, **timing._asdict()}


def keep(name: str, results: Results, table: Mapping[str, Config]) -> None:
    """Prints the lines of the table, and writes them and all timings into $OUT if that is set."""
    major, minor = torch.cuda.get_device_capability()
    text = as_json(table, f"sm_{major}{minor}")
    print(f"\n{text}", end="")
    folder = os.environ.get("OUT")
    if folder:
        records = [
            as_record(kind, shape, rows, timing)
            for (kind, shape), found in results.items()
            for rows, timings in found.items()
            for timing in timings
        ]
        Path(folder, f"{name}.json").write_text(text)
        Path(folder, f"{name}_timings.json").write_text(json.dumps(records, indent=1))


def main(seconds: float = 55.0) -> None:
    torch.manual_seed(0)
    compile_all()
    until = perf_counter() + seconds
    results: Results = defaultdict(dict)
    plain = {shape: plain_times(shape) for shape in SHAPES}
    for kinds, classes in PASSES:
        for kind in kinds:
            for shape in SHAPES if perf_counter() < until else ():
                found = measure_all(kind, shape, classes, until)
                results[kind, shape] |= found
                show(kind, shape, found, plain[shape])
                torch.cuda.empty_cache()
    print(f"{until - perf_counter():.0f} s were left")
    table = table_of(results)
    show_models(results, plain, table)
    keep("quant", results, table)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
