"""Times gate and up of quantized weights in one launch, in CUDA graphs, beside product and gate.

Weights rotate through more memory than the cache holds. Each configuration is checked against
float32. Prints, per shape, kind and number of rows, the best beside what the two shipped operations
take in one graph, and the shipped entry; at the end the lines of `configs/quant_gate_up.json` that
were measured. Classes of more rows keep their entries: of those only the shipped one is timed. All
timings go into the folder $OUT if that is set.

    python scripts/sweep_quant_gate_up.py [seconds]

seconds: after which nothing more is measured, compiling not counted. What matters most comes first:
4 bits and one row.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter

import torch
from replays import per_launch
from side_by_side import compile_jobs
from sweep_quant import (
    AHEAD,
    ENOUGH,
    KINDS,
    LAUNCHES,
    ROUNDS,
    TOLERANCE,
    TRIED_AHEAD,
    WORKERS,
    Fixed,
    Kind,
    Results,
    Timing,
    bytes_of,
    keep,
    made_up,
    random,
    table_of,
)
from torch import Tensor
from torch.nn.functional import silu

from jackfield.plugins.kernels.triton.quant_matmul import TritonQuantMatmul, class_of, dense
from jackfield.plugins.kernels.triton.quant_matmul_silu_mul import TritonQuantMatmulSiluMul
from jackfield.plugins.kernels.triton.quant_pack import AT_ONCE, PackedQuant
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul
from jackfield.plugins.kernels.triton.support import TritonConfig

Config = Mapping[str, int]
Shape = tuple[int, int]
SHAPES: list[Shape] = [(24576, 4096), (6144, 4096), (4096, 4096)]
"""Outputs of gate and up together, and inputs: Qwen3-8B, and parts as ranks and small models have
them."""
FEW, MORE = (1, 2, 4, 8), (16, 32, 64)
"""Numbers of rows: those for which all is tried, and those for which the shipped entry is."""
WARPS = {
    # by class: tiles of a warp, warps abreast, warps in parts, blocks
    1: [(2, 1, 2, 2), (2, 1, 4, 1), (1, 2, 4, 2), (2, 1, 2, 1), (2, 1, 4, 2), (2, 1, 8, 1),
        (1, 2, 2, 2), (1, 2, 4, 1), (1, 2, 2, 1), (1, 2, 4, 3), (1, 2, 2, 3), (1, 2, 8, 1),
        (2, 1, 1, 2), (2, 1, 2, 3), (2, 2, 2, 1), (2, 1, 8, 2), (1, 4, 2, 2)],
    8: [(1, 2, 4, 2), (2, 1, 4, 1), (2, 1, 8, 1), (1, 2, 4, 1), (2, 1, 2, 1), (2, 1, 2, 2),
        (1, 2, 2, 2), (1, 2, 8, 1), (2, 2, 4, 1), (2, 1, 4, 2)],
}  # fmt: skip
PASSES = [
    (KINDS[:1], (1,)), (KINDS[:1], (4, 2, 8)), (KINDS[2:], (1,)), (KINDS[1:2], (1, 4)),
    (KINDS[2:], (4,)), (KINDS[:1], MORE), (KINDS[1:2], (2, 8)), (KINDS[2:], (2, 8)),
]  # fmt: skip
"""What is measured first: kinds, and numbers of rows."""
TALL: Shape = (512, 4096)
"""Whose kernels are those of all shapes: numbers that are multiples of 16 in all are in it."""


def candidates(rows: int, bits: int, shape: Shape) -> Iterator[Config]:
    """rows: of the step; none for more than a few."""
    for place, (tiles, abreast, parts, blocks) in enumerate(WARPS.get(class_of(rows), [])):
        for ahead in (0, AHEAD) if place < TRIED_AHEAD else (0,):
            if shape[1] >= parts * blocks * AT_ONCE * 16 // bits:
                yield {
                    "TILES": tiles, "PARTS": parts, "BLOCKS": blocks, "ROWS": 8, "SPLITS": 1,
                    "AHEAD": ahead, "num_warps": parts * abreast, "num_stages": 1,
                }  # fmt: skip


def in_one(config: Config | None) -> Callable[[Tensor, PackedQuant], Tensor]:
    """None = as it is shipped."""
    operation = TritonQuantMatmulSiluMul(TritonConfig())
    if config is not None:
        operation._configs = Fixed(config)  # type: ignore[assignment]
    return operation


def in_two() -> Callable[[Tensor, PackedQuant], Tensor]:
    """What it stands for, as it is shipped."""
    multiply, gate = TritonQuantMatmul(TritonConfig()), TritonSiluMul(TritonConfig())
    return lambda x, packed: gate(multiply(x, packed))


def compile_one(kind: Kind, rows: int, config: Config | None) -> None:
    """In a process of its own, so that the compiled kernel is on the disk afterwards."""
    packed = made_up(kind, TALL)
    in_one(config)(random((rows, TALL[1])), packed)
    if config is None:
        in_two()(random((rows, TALL[1])), packed)
        dense(packed, 0, TALL[0], torch.float32)


def compile_all() -> None:
    jobs = set()
    for place, kind in enumerate(KINDS):
        jobs |= {(place, rows, "null") for rows in FEW + MORE}
        for rows in FEW:
            for config in candidates(rows, kind.bits, TALL):
                jobs.add((place, class_of(rows), json.dumps(config)))
    found = {job: (KINDS[job[0]], job[1], json.loads(job[2])) for job in sorted(jobs)}
    compile_jobs(compile_one, found, WORKERS)


def measure(
    operation: Callable[[Tensor, PackedQuant], Tensor],
    config: Config,
    x: Tensor,
    weights: list[PackedQuant],
    want: Tensor,
) -> Timing:
    walk = weights * -(-LAUNCHES // len(weights))

    def body() -> None:
        for packed in walk:
            operation(x, packed)

    first = operation(x, weights[0])
    time = per_launch(body, len(walk), ROUNDS)
    again = operation(x, weights[0])
    right = (first.float() - want).abs() <= TOLERANCE * (1 + want.abs())
    return Timing(config, time, bool(right.all()) and torch.equal(first, again))


def measure_all(
    kind: Kind, shape: Shape, numbers: tuple[int, ...], until: float
) -> dict[int, list[Timing]]:
    """By number of rows, the candidates. Prints the best beside what is shipped."""
    one = made_up(kind, shape)
    weights = [one, *(made_up(kind, shape) for _ in range(-(-ENOUGH // bytes_of(one)) - 1))]
    x = random((max(numbers), shape[1]))
    gate, up = (x.float() @ dense(one, 0, shape[0], torch.float32).t()).chunk(2, dim=1)
    want, found = silu(gate) * up, {}
    for rows in numbers:
        if perf_counter() > until:
            break
        two, shipped = (
            measure(operation, {}, x[:rows], weights, want[:rows])
            for operation in (in_two(), in_one(None))
        )
        found[rows] = []
        for config in candidates(rows, kind.bits, shape):
            try:
                timing = measure(in_one(config), config, x[:rows], weights, want[:rows])
            except Exception as problem:  # one that does not fit must not hide the others
                print(f"{kind.name} {shape} {rows} {config}: {problem}", file=sys.stderr)
                continue
            found[rows].append(timing)
        show(kind, shape, rows, two, shipped, found[rows])
    return found


def show(
    kind: Kind, shape: Shape, rows: int, two: Timing, shipped: Timing, timings: list[Timing]
) -> None:
    wrong = [timing for timing in (two, shipped, *timings) if not timing.right]
    right = [timing for timing in timings if timing.right]
    print(
        f"{kind.name:16} {shape[0]:5} x {shape[1]}, {rows:2} rows: in two {two.time:7.2f} us, "
        f"shipped {shipped.time:7.2f} us ({shipped.time - two.time:+6.2f})"
    )
    for timing in sorted(right, key=lambda one: one.time)[:3]:
        print(f"    {timing.time:7.2f} us ({timing.time - two.time:+6.2f})  {dict(timing.config)}")
    for timing in wrong:
        print(f"    WRONG {dict(timing.config)}", file=sys.stderr)
    sys.stdout.flush()


def main(seconds: float = 120.0) -> None:
    torch.manual_seed(0)
    compile_all()
    until = perf_counter() + seconds
    results: Results = defaultdict(dict)
    for kinds, numbers in PASSES:
        for kind in kinds:
            for shape in SHAPES if perf_counter() < until else ():
                results[kind, shape] |= measure_all(kind, shape, numbers, until)
                torch.cuda.empty_cache()
    print(f"{until - perf_counter():.0f} s were left")
    keep("quant_gate_up", results, table_of(results))


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
