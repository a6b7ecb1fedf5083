"""Times variants of the decode kernels in CUDA graphs, and says which is the best for each case.

Layers rotate through more memory than the cache holds. Times are per layer, merging included; the
list of work, made once per step, is timed apart. Each result is checked against float32. Prints
tables, and writes `sweep_decode.json` into the folder $OUT if that is set.

    python scripts/sweep_decode.py [all | one | few | codes | shares] [part of a case's name]

one: steps of one decode. few: of few. codes: large ones, with keys and values of one byte.
shares: large ones, cut into pieces and into equal shares.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from decode_cases import ENOUGH, GROUP_VARIANTS, STANDARD, SWEEPS, Case, Config, Sweep
from replays import captured, replays
from torch import Tensor

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import AttnBatch, KvLayer, KvSpec, SharedPrefixes
from jackfield.plugins.kernels.torch_ops.encoding import restore, store
from jackfield.plugins.kernels.triton.attention import TritonAttention
from jackfield.plugins.kernels.triton.attention_step import TritonStep, geometry_of
from jackfield.plugins.kernels.triton.support import TritonConfig

DEVICE = torch.device("cuda")
HEAD_DIM, BLOCK = 128, 16
LAYERS = 4
"""Of a graph at least."""
ROUNDS = 5
WORKERS = 12
LISTS = 8
"""Lists of work that are timed together."""
ENCODINGS = {
    "bf16": None,
    "e4m3": KvEncoding("e4m3", torch.float8_e4m3fn, 448.0),
    "e5m2": KvEncoding("e5m2", torch.float8_e5m2, 57344.0),
    "int8": KvEncoding("int8", torch.int8, 127.0),
}
TOLERANCE = 2e-2


class Timing(NamedTuple):
    """Microseconds per layer and per list of work; TB/s of what must be read."""

    case: str
    encoding: str
    variant: str
    layer_us: float
    list_us: float
    speed: float
    error: float


NAMED = (
    ("CUT", "cut"),
    ("REGISTERS", "registers"),
    ("SHARES", "shares"),
    ("LEAST", "least"),
)
"""Entries of a configuration that are only told if they are there."""


class Variant:
    """A table in which all shapes have the same entry. group: None = common beginnings are not
    looked for."""

    def __init__(self, own: Config, group: Config | None = None) -> None:
        self.own, self.group = own, group

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> Config:
        return (self.group or GROUP_VARIANTS[0]) if shape.startswith("group") else self.own

    def __str__(self) -> str:
        own = self.own
        name = f"tile {own['TILE']} stages {own['num_stages']} warps {own['num_warps']}"
        name += f" ctas {own['CTAS']} over {own['OVERHEAD']} last {own['LAST']}"
        for key, word in NAMED:
            name += f" {word} {own[key]}" if key in own else ""
        if self.group is not None:
            group = self.group
            name += f" | rows {group['ROWS']} tile {group['TILE']} stages {group['num_stages']}"
            name += f" warps {group['num_warps']} ctas {group['CTAS']}"
        return name


class Scene:
    """A case's layers, with sequences in scattered blocks."""

    def __init__(self, case: Case, encoding: KvEncoding | None, enough: int = ENOUGH) -> None:
        self.case, self.encoding = case, encoding
        heads, kv_heads = case.heads
        self.spec = KvSpec(heads, kv_heads, HEAD_DIM, torch.bfloat16, BLOCK, None, encoding)
        element = 2 if encoding is None else 1
        self.bytes = case.read * kv_heads * HEAD_DIM * element * 2
        self.tables, self.blocks = scattered(case)
        count = max(-(-enough // self.bytes), 1)
        self.layers = [self.layer(kv_heads) for _ in range(count)]
        self.q = torch.randn(len(case.lens), heads, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)
        self.out = torch.empty_like(self.q)
        self.lens = torch.tensor(case.lens, dtype=torch.int32, device=DEVICE)

    def layer(self, kv_heads: int) -> KvLayer:
        shape = (self.blocks, kv_heads, BLOCK, HEAD_DIM)
        scales = None
        pools = [torch.randn(shape, dtype=torch.bfloat16, device=DEVICE) for _ in range(2)]
        if self.encoding is not None:
            scale = torch.full((kv_heads,), 0.02, device=DEVICE)
            scales = KvScales(scale, scale)
            pools = [stored(pool, scale, self.encoding) for pool in pools]
        tensors = dict(zip("kv", pools, strict=True))
        return KvLayer(tensors, HEAD_DIM**-0.5, None, scales, self.encoding)

    def batch(self, *, shared: bool) -> AttnBatch:
        rows = len(self.case.lens)
        starts = torch.arange(rows + 1, dtype=torch.int32, device=DEVICE)
        slots = torch.full((rows,), -1, dtype=torch.int64, device=DEVICE)
        groups = self.shared() if shared else None
        longest = max(self.case.lens)
        return AttnBatch(starts, self.lens, self.tables, slots, rows, 1, longest, (), groups)

    def shared(self) -> SharedPrefixes:
        rows = len(self.case.lens)
        order = torch.arange(rows, dtype=torch.int32, device=DEVICE)
        size, common = (torch.full_like(order, x) for x in (rows, self.case.common))
        return SharedPrefixes(order, order.clone(), size, common)

    def reference(self) -> Tensor:
        """Float32 attention to what is stored in the first layer."""
        return torch.stack([self.dense(row) for row in range(len(self.case.lens))])

    def dense(self, row: int) -> Tensor:
        layer, length = self.layers[0], self.case.lens[row]
        table = self.tables[row, : -(-length // BLOCK)].long()
        k, v = (self.read(layer, name, table)[:, :length] for name in "kv")
        q = self.q[row].float().view(k.shape[0], -1, HEAD_DIM)
        shares = (q @ k.transpose(1, 2) * layer.scale).softmax(-1)
        return (shares @ v).flatten(0, 1)

    def read(self, layer: KvLayer, name: str, table: Tensor) -> Tensor:
        pool = layer.tensors[name]
        found = pool.view(torch.uint8)[table].view(pool.dtype)
        found = found.transpose(0, 1).flatten(1, 2)
        scale = None if layer.scales is None else layer.scales.k_K
        return restore(found, scale, heads_axis=-3)


def stored(pool: Tensor, scale: Tensor, encoding: KvEncoding) -> Tensor:
    """In parts: float32 is four times as large."""
    parts = [store(part, scale, encoding, -3).view(torch.uint8) for part in pool.split(4096)]
    return torch.cat(parts).view(encoding.dtype)


def scattered(case: Case) -> tuple[Tensor, int]:
    """Block tables, and how many blocks there are."""
    shared = case.common // BLOCK
    counts = [-(-length // BLOCK) - shared for length in case.lens]
    blocks = sum(counts) + shared
    free = torch.randperm(blocks, dtype=torch.int32)
    tables = torch.zeros(len(counts), max(counts) + shared, dtype=torch.int32)
    tables[:, :shared] = free[:shared]
    begin = shared
    for row, count in enumerate(counts):
        tables[row, shared : shared + count] = free[begin : begin + count]
        begin += count
    return tables.to(DEVICE), blocks


def kernels(variant: Variant) -> TritonAttention:
    attention = TritonAttention(TritonConfig())
    attention._configs = variant  # type: ignore[assignment]
    return attention


def variants_of(case: Case, sweep: Sweep) -> Iterator[Variant]:
    if not case.common:
        yield from map(Variant, sweep.variants)
        return
    yield Variant(STANDARD)
    for group in GROUP_VARIANTS:
        yield Variant(STANDARD, group)


class Job(NamedTuple):
    """What one process compiles. rows: of the list of work; 0 = the kernels of a layer."""

    heads: tuple[int, int]
    encoding: str
    own: str
    group: str
    rows: int

    def __call__(self) -> None:
        """Whatever is compiled is on the disk afterwards."""
        group = json.loads(self.group)
        rows = self.rows or 2
        case = Case("", self.heads, [48] * rows, 32 if group is not None else 0)
        scene = Scene(case, ENCODINGS[self.encoding], 1)
        variant = Variant(json.loads(self.own), group)
        if not self.rows:
            run(scene, variant)
            return
        step = kernels(variant).prepare(scene.batch(shared=group is not None))
        step.plan(geometry_of(scene.q, scene.layers[0]))


def jobs_of(case: Case, sweep: Sweep) -> Iterator[Job]:
    tiles = {}
    for variant in variants_of(case, sweep):
        # What a piece costs is no constant of the kernels.
        own = json.dumps({**variant.own, "OVERHEAD": 24, "CUT": 0, "LEAST": 1})
        group = json.dumps(variant.group)
        for name in sweep.encodings:
            yield Job(case.heads, name, own, group, 0)
        tile = variant.own["TILE"]
        members = variant.group and (variant.group["TILE"], variant.group["ROWS"])
        tiles[tile, members, variant.own.get("SHARES")] = own, group
    for own, group in tiles.values():
        yield Job(case.heads, "bf16", own, group, len(case.lens))


def run(scene: Scene, variant: Variant) -> Tensor:
    attention = kernels(variant)
    step = attention.prepare(scene.batch(shared=variant.group is not None))
    return attention.forward(scene.q, scene.layers[0], step, scene.out)


def compile_all(cases: list[Case], sweep: Sweep) -> None:
    jobs = {job: None for case in cases for job in jobs_of(case, sweep)}
    began = perf_counter()
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        for done in [pool.submit(job) for job in jobs]:
            if done.exception() is not None:
                print("a variant failed:", done.exception(), file=sys.stderr)
    print(f"compiled {len(jobs)} variants in {perf_counter() - began:.0f} s", flush=True)


def timed(scene: Scene, variant: Variant) -> tuple[float, float]:
    """Microseconds of a layer, and of a list of work."""
    attention = kernels(variant)
    batch = scene.batch(shared=variant.group is not None)
    repeats = max(-(-LAYERS // len(scene.layers)), 1)
    layers = scene.layers * repeats

    def step(count: int) -> Callable[[], None]:
        def body() -> None:
            prepared: TritonStep = attention.prepare(batch)
            for layer in layers[:count]:
                attention.forward(scene.q, layer, prepared, scene.out)

        return body

    def lists(count: int) -> Callable[[], None]:
        geometry = geometry_of(scene.q, scene.layers[0])
        return lambda: [attention.prepare(batch).plan(geometry) for _ in range(count)] and None

    layer = (replayed(step(len(layers))) - replayed(step(1))) / max(len(layers) - 1, 1)
    return layer, (replayed(lists(LISTS + 1)) - replayed(lists(1))) / LISTS


def replayed(body: Callable[[], None]) -> float:
    """Microseconds of one replay, the median of some."""
    return replays(captured(body), ROUNDS)[ROUNDS // 2]


def measure(case: Case, name: str, sweep: Sweep) -> list[Timing]:
    scene = Scene(case, ENCODINGS[name], sweep.enough)
    want = scene.reference()
    found = []
    for variant in variants_of(case, sweep):
        try:
            scene.out.fill_(float("nan"))
            error = float((run(scene, variant).float() - want).abs().max())
            layer, work = timed(scene, variant)
        except Exception as problem:  # one that does not fit must not hide the others
            print(f"{case.name} {name} {variant}: {problem}", file=sys.stderr)
            continue
        speed = scene.bytes / layer / 1e6
        found.append(Timing(case.name, name, str(variant), layer, work, speed, error))
    return sorted(found, key=lambda timing: timing.layer_us)


def show(found: list[Timing]) -> None:
    if not found:
        return
    print(f"\n{found[0].case} {found[0].encoding}")
    for timing in found:
        wrong = "" if timing.error <= TOLERANCE else "  WRONG"
        print(
            f"  {timing.layer_us:8.1f} us {timing.speed:6.2f} TB/s  list {timing.list_us:5.1f} us"
            f"  error {timing.error:.1e}  {timing.variant}{wrong}"
        )
    sys.stdout.flush()


def main(name: str = "all", part: str = "") -> None:
    torch.manual_seed(0)
    sweep = SWEEPS[name]
    cases = [case for case in sweep.cases if part in case.name]
    compile_all(cases, sweep)
    timings: list[Timing] = []
    for case in cases:
        for encoding in sweep.encodings:
            found = measure(case, encoding, sweep)
            show(found)
            timings += found
            torch.cuda.empty_cache()
    save([timing._asdict() for timing in timings])


def save(timings: list[dict[str, Any]]) -> None:
    folder = os.environ.get("OUT")
    if folder:
        Path(folder, "sweep_decode.json").write_text(json.dumps(timings, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:3])
