"""Times variants of latent attention's decodes in CUDA graphs, and says which is the best.

Layers rotate through more memory than the cache holds. Times are per layer, merging included; the
shares, made once per step, are timed apart. Each result is checked against float32. Prints a table
for each case, with what is read a second as a part of what the device reads at best, and writes
`sweep_latent.json` into the folder $OUT if that is set.

    python scripts/sweep_latent.py [part of a case's name] [variants of a case at most] [encodings]

encodings: names with commas between, of bf16 (which is the default), e4m3, e5m2 and int8. On a
CPU, with TRITON_INTERPRET=1, a tiny case is checked and nothing timed.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from replays import captured, replays
from torch import Tensor

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import AttnBatch, KvLayer
from jackfield.core.bench.machine import measure_ceilings
from jackfield.plugins.kernels.torch_ops.encoding import restore, store
from jackfield.plugins.kernels.triton.attention_step import TritonStep
from jackfield.plugins.kernels.triton.latent_decode import LATENT, latent_configs, latent_decode
from jackfield.plugins.kernels.triton.rehearsal import rehearsal
from jackfield.plugins.kernels.triton.shares import make_shares, room_for
from jackfield.plugins.kernels.triton.support import num_processors

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
RANK, ENTRIES, BLOCK = 512, 576, 16
SCALE = ENTRIES**-0.5
ENOUGH = 320 << 20
"""Bytes that layers rotate through at least."""
LAYERS = 4
"""Of a graph at least."""
ROUNDS = 5
PLANS = 8
"""Shares that are timed together."""
CHECKED = 6
"""Rows of a case that are checked."""
TOLERANCE = 2e-2
"""Of the largest entry."""
STORED_SCALE = 0.02
ENCODINGS = {
    "bf16": None,
    "e4m3": KvEncoding("e4m3", torch.float8_e4m3fn, 448.0),
    "e5m2": KvEncoding("e5m2", torch.float8_e5m2, 57344.0),
    "int8": KvEncoding("int8", torch.int8, 127.0),
}
Config = Mapping[str, int]


class Case(NamedTuple):
    name: str
    heads: int
    lens: list[int]

    @property
    def operations(self) -> int:
        """Of the products."""
        return 2 * self.heads * (ENTRIES + RANK) * sum(self.lens)


class Timing(NamedTuple):
    """layer_us: microseconds per layer. shares_us: of a step's shares, by the case's first variant.
    speed: TB/s of what must be read; part: of what the device reads at best. error: the largest, by
    the largest entry."""

    case: str
    encoding: str
    variant: str
    layer_us: float
    shares_us: float
    speed: float
    part: float
    tflops: float
    error: float


def mixed() -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(100, 2049, (256,), generator=generator).tolist()


CASES = [
    Case("16 heads 20x250", 16, [250] * 20),
    Case("16 heads 64x2048", 16, [2048] * 64),
    Case("16 heads 64x8192", 16, [8192] * 64),
    Case("16 heads 256 mixed", 16, mixed()),
    Case("16 heads 16x32000", 16, [32000] * 16),
    Case("32 heads 64x2048", 32, [2048] * 64),
    Case("128 heads 64x2048", 128, [2048] * 64),
    Case("128 heads 16x8192", 128, [8192] * 16),
]
TINY = [Case("4 heads 3 rows", 4, [40, 1, 70])]


def config(
    tile: int, stages: int, warps: int, ctas: int, heads: int = 16, least: int = 2, **more: int
) -> Config:
    """more: REGISTERS."""
    return {
        "TILE": tile, "HEADS": heads, "CTAS": ctas, "LEAST": least, "num_warps": warps,
        "num_stages": stages, **more,
    }  # fmt: skip


FEW_HEADS = [
    config(32, 3, 4, 2),
    config(32, 3, 8, 2, REGISTERS=128),
    config(64, 3, 8, 1),
    config(32, 3, 4, 2, least=1),
    config(16, 4, 4, 3),
    config(32, 2, 4, 2),
    config(32, 5, 8, 1),
    config(64, 3, 16, 1),
    config(32, 4, 4, 1),
    config(32, 3, 4, 2, least=6),
]
"""From the most promising ones on."""
MIDDLE = [
    config(64, 3, 8, 1, heads=32),
    config(32, 3, 8, 1, heads=32),
    config(32, 3, 4, 2),
    config(64, 3, 8, 1),
    config(64, 2, 8, 1, heads=32),
    config(32, 4, 8, 1, heads=32),
]
MANY_HEADS = [
    config(32, 3, 8, 1, heads=64),
    config(64, 2, 8, 1, heads=64),
    config(64, 3, 8, 1, heads=32),
    config(16, 4, 8, 1, heads=64),
    config(32, 3, 8, 1, heads=32),
    config(32, 2, 8, 1, heads=64),
    config(64, 3, 8, 1),
]
CODES_OF_FEW_HEADS = [
    config(32, 4, 4, 2),
    config(64, 3, 8, 1),
    config(32, 3, 4, 2),
    config(64, 4, 8, 1),
    config(32, 4, 8, 1),
]
CODES_OF_MORE = [
    config(64, 3, 8, 1, heads=32),
    config(32, 3, 8, 1, heads=32),
    config(64, 4, 8, 1, heads=32),
    config(64, 3, 8, 1),
]


def variants_of(case: Case, encoding: str, most: int) -> list[Config]:
    if encoding != "bf16":
        return (CODES_OF_FEW_HEADS if case.heads <= 16 else CODES_OF_MORE)[:most]
    if case.heads <= 16:
        return FEW_HEADS[:most]
    return (MIDDLE if case.heads <= 32 else MANY_HEADS)[:most]


class Variant:
    """A table in which all shapes have the same entry."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> Config:
        return self.config

    def __str__(self) -> str:
        found = self.config
        name = f"tile {found['TILE']} stages {found['num_stages']} warps {found['num_warps']}"
        name += f" ctas {found['CTAS']} heads {found['HEADS']} least {found['LEAST']}"
        return name + (f" registers {found['REGISTERS']}" if "REGISTERS" in found else "")


class Scene:
    """A case's layers, with sequences in scattered blocks."""

    def __init__(self, case: Case, encoding: KvEncoding | None, enough: int = ENOUGH) -> None:
        self.case, self.encoding = case, encoding
        self.bytes = sum(case.lens) * ENTRIES * (2 if encoding is None else 1)
        self.tables, self.blocks = scattered(case)
        self.layers = [self.layer() for _ in range(max(-(-enough // self.bytes), 1))]
        shape = (len(case.lens), case.heads, ENTRIES)
        self.q = torch.randn(shape, device=DEVICE).to(torch.bfloat16)
        self.out = self.q.new_empty(*shape[:2], RANK)
        self.lens = torch.tensor(case.lens, dtype=torch.int32, device=DEVICE)

    def layer(self) -> KvLayer:
        shape = (self.blocks, 1, BLOCK, ENTRIES)
        pool = torch.empty(shape, dtype=torch.bfloat16, device=DEVICE).normal_()
        if self.encoding is None:
            return KvLayer({LATENT: pool}, SCALE)
        scale = torch.full((1,), STORED_SCALE, device=DEVICE)
        # In parts: float32 is four times as large.
        parts = [store(part, scale, self.encoding, -3) for part in pool.split(4096)]
        pool = torch.cat([part.view(torch.uint8) for part in parts]).view(self.encoding.dtype)
        return KvLayer({LATENT: pool}, SCALE, None, KvScales(scale, scale), self.encoding)

    def batch(self) -> AttnBatch:
        rows = len(self.case.lens)
        starts = torch.arange(rows + 1, dtype=torch.int32, device=DEVICE)
        slots = torch.full((rows,), -1, dtype=torch.int64, device=DEVICE)
        return AttnBatch(starts, self.lens, self.tables, slots, rows, 1, max(self.case.lens), ())

    def checked(self) -> list[int]:
        rows = len(self.case.lens)
        return sorted({at * (rows - 1) // (CHECKED - 1) for at in range(CHECKED)})

    def reference(self) -> Tensor:
        """Float32 attention to what is stored in the first layer, of the checked rows."""
        return torch.stack([self.dense(row) for row in self.checked()])

    def dense(self, row: int) -> Tensor:
        layer, length = self.layers[0], self.case.lens[row]
        table = self.tables[row, : -(-length // BLOCK)].long()
        pool = layer.tensors[LATENT]
        codes = pool.view(torch.uint8) if pool.dtype.itemsize == 1 else pool
        found = codes[table].view(pool.dtype)
        scale = None if layer.scales is None else layer.scales.k_K
        vectors = restore(found, scale, heads_axis=-3).flatten(0, 2)[:length]
        shares = (self.q[row].float() @ vectors.T * layer.scale).softmax(-1)
        return shares @ vectors[:, :RANK]

    def error(self, want: Tensor) -> float:
        found = self.out[self.checked()].float()
        return float((found - want).abs().max() / want.abs().max())


def scattered(case: Case) -> tuple[Tensor, int]:
    """Block tables, and how many blocks there are."""
    counts = [-(-length // BLOCK) for length in case.lens]
    free = torch.randperm(sum(counts), dtype=torch.int32)
    tables = torch.zeros(len(counts), max(counts), dtype=torch.int32)
    for row, blocks in enumerate(free.split(counts)):
        tables[row, : len(blocks)] = blocks
    return tables.to(DEVICE), sum(counts)


def run(scene: Scene, variant: Variant, layers: list[KvLayer]) -> None:
    """A step of these layers."""
    step = TritonStep(scene.batch(), latent_configs(), None)
    for layer in layers:
        latent_decode(scene.q, layer, step, scene.out, variant)  # type: ignore[arg-type]


def compile_all(todo: list[tuple[Case, str]], most: int) -> None:
    """All variants side by side, by processes that use no GPU."""
    began = perf_counter()
    with rehearsal():
        for case, encoding in todo:
            # Block tables as wide as they will be, and as many rows.
            small = Case("", case.heads, [min(length, BLOCK) for length in case.lens])
            scene = Scene(small, ENCODINGS[encoding], 1)
            width = max(-(-length // BLOCK) for length in case.lens)
            scene.tables = scene.tables.new_zeros(len(case.lens), width)
            for found in variants_of(case, encoding, most):
                run(scene, Variant(found), scene.layers)
    print(f"compiled in {perf_counter() - began:.0f} s", flush=True)


def timed(scene: Scene, variant: Variant) -> float:
    """Microseconds of a layer."""
    layers = scene.layers * max(-(-LAYERS // len(scene.layers)), 1)
    many = replayed(lambda: run(scene, variant, layers))
    return (many - replayed(lambda: run(scene, variant, layers[:1]))) / (len(layers) - 1)


def timed_shares(scene: Scene, config: Config) -> float:
    """Microseconds of a step's shares."""
    batch, groups = scene.batch(), max(scene.case.heads // config["HEADS"], 1)
    programs = num_processors(DEVICE, 0) * config["CTAS"]
    room = room_for(programs, config["TILE"], config["TILE"], DEVICE)

    def made(count: int) -> None:
        for _ in range(count):
            make_shares(batch, groups, None, room, config["LEAST"])

    many = replayed(lambda: made(PLANS + 1))
    return (many - replayed(lambda: made(1))) / PLANS


def replayed(body: Callable[[], None]) -> float:
    """Microseconds of one replay, the median of some."""
    return replays(captured(body), ROUNDS)[ROUNDS // 2]


def measure(case: Case, name: str, most: int, read: float) -> Iterator[Timing]:
    """read: bytes a second that the device reads at best."""
    scene = Scene(case, ENCODINGS[name])
    want, variants = scene.reference(), variants_of(case, name, most)
    shares = timed_shares(scene, variants[0]) if DEVICE.type == "cuda" else float("nan")
    for found in variants:
        variant = Variant(found)
        try:
            scene.out.fill_(float("nan"))
            run(scene, variant, scene.layers[:1])
            error = scene.error(want)
            layer = timed(scene, variant) if DEVICE.type == "cuda" else float("nan")
        except Exception as problem:  # one that does not fit must not hide the others
            print(f"{case.name} {name} {variant}: {problem}", file=sys.stderr)
            continue
        speed = scene.bytes / layer * 1e6
        tflops = case.operations / layer / 1e6
        yield Timing(
            case.name, name, str(variant), layer, shares, speed / 1e12, speed / read, tflops, error
        )


def show(found: list[Timing]) -> None:
    if not found:
        return
    print(f"\n{found[0].case} {found[0].encoding}, shares {found[0].shares_us:.1f} us")
    for timing in found:
        wrong = "" if timing.error <= TOLERANCE else "  WRONG"
        print(
            f"  {timing.layer_us:8.1f} us {timing.speed:5.2f} TB/s {timing.part:4.0%}"
            f" {timing.tflops:5.0f} TFLOP/s  error {timing.error:.1e}  {timing.variant}{wrong}"
        )
    sys.stdout.flush()


def read_speed() -> float:
    """Bytes a second."""
    if DEVICE.type == "cpu":
        return float("nan")
    found = measure_ceilings(DEVICE, torch.bfloat16).read
    print(f"reads {found / 1e12:.2f} TB/s at best")
    return found


def main(part: str = "", most: str = "99", encodings: str = "bf16") -> None:
    torch.manual_seed(0)
    cases = [case for case in CASES if part in case.name] if DEVICE.type == "cuda" else TINY
    todo = [(case, name) for name in encodings.split(",") for case in cases]
    read = read_speed()
    if DEVICE.type == "cuda":
        compile_all(todo, int(most))
    timings: list[Timing] = []
    for case, name in todo:
        found = list(measure(case, name, int(most), read))
        show(sorted(found, key=lambda timing: timing.layer_us))
        timings += found
        if DEVICE.type == "cuda":
            torch.cuda.empty_cache()
    save([timing._asdict() for timing in timings])


def save(timings: list[dict[str, Any]]) -> None:
    folder = os.environ.get("OUT")
    if folder:
        Path(folder, "sweep_latent.json").write_text(json.dumps(timings, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:4])
