"""Times experts with quantized weights in CUDA graphs, and says which configuration is best.

Layers rotate through more memory than the cache holds. Every configuration is held against the
shipped one. Prints, per model, kind and number of tokens, what both products take in each
configuration beside reading the packed weights of the experts that were chosen, and at the end
what whole calls take, as they are shipped and by plain matrices.

    python scripts/sweep_quant_experts.py [seconds]

seconds: after which nothing more is measured, compiling counted.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from replays import per_launch
from torch import Tensor

from jackfield.core.api import QuantExpert, QuantKind, QuantWeight
from jackfield.plugins.kernels.triton import configs as tables
from jackfield.plugins.kernels.triton.quant_experts import TritonQuantExperts
from jackfield.plugins.kernels.triton.quant_experts_dense import multiply_dense
from jackfield.plugins.kernels.triton.quant_experts_pack import PackedExperts
from jackfield.plugins.kernels.triton.quant_experts_rows import direct_rows, sorted_rows
from jackfield.plugins.kernels.triton.quant_experts_tiles import (
    DIRECT,
    HEIGHTS,
    down,
    gate_up,
    height_of,
)
from jackfield.plugins.kernels.triton.quant_experts_work import QuantWork
from jackfield.plugins.kernels.triton.support import TritonConfig

DEVICE = torch.device("cuda")
ENOUGH = 256 << 20
"""Bytes of weights that a graph walks over at least."""
TOKENS = (1, 4, 16, 64, 256, 1024, 4096)
TOLERANCE = 2e-2
ROUNDS = 3


class Shape(NamedTuple):
    """experts, top: of a layer, and of a token."""

    name: str
    experts: int
    top: int
    hidden: int
    width: int


class Kind(NamedTuple):
    """group: 0 = all inputs."""

    name: str
    kind: QuantKind
    group: int
    rows: int = 1
    zeros: bool = False


SHAPES = [Shape("qwen3-30b-a3b", 128, 8, 2048, 768), Shape("mixtral-8x7b", 8, 2, 4096, 14336)]
KINDS = [
    Kind("int4 g128 zeros", QuantKind.INT4, 128, zeros=True),
    Kind("fp8 block", QuantKind.FP8, 128, 128),
    Kind("int8 channel", QuantKind.INT8, 0),
]
WARPS = [
    # tiles of a warp, warps in parts, blocks, warps, tiles that take turns
    (2, 8, 1, 8, 1), (2, 4, 1, 4, 1), (1, 4, 1, 8, 1), (1, 2, 1, 4, 1), (2, 4, 2, 4, 1),
    (2, 2, 1, 4, 1), (2, 2, 1, 4, 8), (1, 4, 1, 4, 1), (1, 4, 2, 4, 1), (1, 2, 1, 4, 8),
    (1, 8, 1, 8, 1), (2, 2, 1, 8, 8), (1, 1, 1, 4, 8),
]  # fmt: skip
Config = Mapping[str, int]


def weight(kind: Kind, outputs: int, inputs: int) -> QuantWeight:
    group = kind.group or inputs
    table = -(-outputs // kind.rows), -(-inputs // group)
    columns = inputs // 2 if kind.kind is QuantKind.INT4 else inputs
    values = torch.randint(0, 256, (outputs, columns), dtype=torch.uint8, device=DEVICE)
    if kind.kind is QuantKind.FP8:
        values = (values & 0xBF).view(torch.float8_e4m3fn)
    size = {QuantKind.INT4: 8, QuantKind.INT8: 128, QuantKind.FP8: 1}[kind.kind] * inputs**0.5
    scales = (torch.rand(table, device=DEVICE) + 0.5) / size
    zeros = torch.randint(6, 10, table, dtype=torch.uint8, device=DEVICE) if kind.zeros else None
    scales = scales if kind.kind is QuantKind.FP8 else scales.half()
    return QuantWeight(kind.kind, values, scales, zeros, group, kind.rows, (outputs, inputs))


def layers(shape: Shape, kind: Kind, operation: TritonQuantExperts) -> list[PackedExperts]:
    """As many as no cache holds, of one expert's weights each."""
    hidden, width = shape.hidden, shape.width
    one = QuantExpert(weight(kind, 2 * width, hidden), weight(kind, hidden, width))
    size = (one.gate_up.nbytes + one.down.nbytes) * shape.experts
    copies = [
        QuantExpert(replace(one.gate_up, values=part), one.down)
        for part in (one.gate_up.values.roll(shift, 0) for shift in range(shape.experts))
    ]
    return [operation.pack(iter(copies), shape.experts) for _ in range(max(2, ENOUGH // size))]


def works(shape: Shape, tokens: int, packs: list[PackedExperts]) -> list[QuantWork]:
    found = []
    for packed in packs:
        x = torch.randn(tokens, shape.hidden, dtype=torch.bfloat16, device=DEVICE)
        ids = torch.rand(tokens, shape.experts, device=DEVICE).argsort(1)[:, : shape.top]
        shares = torch.rand(tokens, shape.top, device=DEVICE)
        found.append(QuantWork(x, ids.contiguous(), shares, None, packed))
    return found


def read_time(shape: Shape, calls: list[QuantWork], bandwidth: float) -> float:
    """Microseconds that reading the packed weights of what was chosen takes."""
    packed = calls[0].packed
    size = packed.gate_up.words.nbytes + packed.down.words.nbytes
    chosen = sum(len(call.ids_TK.unique()) for call in calls) / len(calls)
    return size / shape.experts * chosen / bandwidth * 1e6


def candidates(part: str) -> Iterator[Config]:
    for tiles, parts, blocks, warps, together in WARPS:
        if part == "gate_up" and tiles * warps // parts % 2:
            continue
        yield {"TILES": tiles, "PARTS": parts, "BLOCKS": blocks, "TOGETHER": together,
               "num_warps": warps, "num_stages": 1}  # fmt: skip


def near(found: Tensor, wanted: Tensor) -> bool:
    distance = (found.float() - wanted.float()).norm() / wanted.float().norm()
    return float(distance) < TOLERANCE


def sweep(calls: list[QuantWork], operation: TritonQuantExperts, name: int) -> None:
    """Both products of one class, each by itself."""
    plain, height = operation._plain, max(name, HEIGHTS[0])
    ready = [
        direct_rows(call) if name == DIRECT else sorted_rows(call, height, plain) for call in calls
    ]
    bits, dtype = calls[0].bits, torch.bfloat16
    shipped = {
        part: operation._configs.find(f"{part}_{bits}_{name}", dtype, DEVICE)
        for part in ("gate_up", "down")
    }
    hidden = [
        gate_up(call, rows, height, shipped["gate_up"])
        for call, rows in zip(calls, ready, strict=True)
    ]
    runs: dict[str, Callable[[Config], list[Callable[[], Tensor]]]] = {
        "gate_up": lambda config: [
            lambda call=call, rows=rows: gate_up(call, rows, height, config)
            for call, rows in zip(calls, ready, strict=True)
        ],
        "down": lambda config: [
            lambda call=call, rows=rows, h=h: down(call, rows, h, height, config)
            for call, rows, h in zip(calls, ready, hidden, strict=True)
        ],
    }
    for part, make in runs.items():
        wanted = make(shipped[part])[0]()
        for config in candidates(part):
            run = make(config)
            right = near(run[0](), wanted)
            mark = " (shipped)" if config == shipped[part] else ""
            text = f"{time_of(run):8.1f} us {right} {dict(config)}{mark}"
            print(f"    {part}_{bits}_{name} {text}", flush=True)


def time_of(runs: list[Callable[[], Tensor]]) -> float:
    """Microseconds of one of them, all of which have been run before."""
    return per_launch(lambda: [run() for run in runs], len(runs), ROUNDS)


def whole(calls: list[QuantWork], run: Callable[[QuantWork], Tensor]) -> float:
    run(calls[0])
    return time_of([lambda call=call: run(call) for call in calls])


def main(seconds: float = 500.0) -> None:
    began, bandwidth = perf_counter(), 0.9 * 4.8e12
    operation = TritonQuantExperts(TritonConfig())
    print(f"table: {Path(tables.FOLDER) / 'quant_experts.json'}")
    for shape in SHAPES:
        for kind in KINDS:
            packs = layers(shape, kind, operation)
            for tokens in TOKENS:
                if perf_counter() - began > seconds:
                    return
                calls = works(shape, tokens, packs)
                bound = read_time(shape, calls, bandwidth)
                print(f"{shape.name} {kind.name} {tokens} tokens: reading takes {bound:.1f} us")
                name = DIRECT if tokens == 1 else height_of(calls[0].load)
                if tokens <= 256:
                    sweep(calls, operation, name)
                shipped = whole(calls, lambda call: operation(*call))
                dense = whole(calls, lambda call: multiply_dense(call, "64", operation._plain))
                print(f"    whole call {shipped:.1f} us, by plain matrices {dense:.1f} us")
            del packs
            torch.cuda.empty_cache()


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.inference_mode():
        main(*map(float, sys.argv[1:2]))
