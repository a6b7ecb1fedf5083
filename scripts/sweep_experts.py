"""Times experts in CUDA graphs, and says which configuration is best for each number of tokens.

Calls go round layers whose weights are more than the cache holds, each with a choice of its own.
Each configuration is checked against torch's operation. Prints how fast the weights of the experts
that somebody chose are read, by the best of each and by the table, what sorting and summing take,
and from which number of tokens on torch's grouped products are faster; and the table as
`configs/experts.json` has it, which also goes into the folder $OUT if that is set.

    python scripts/sweep_experts.py
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from replays import per_launch
from side_by_side import compile_jobs
from torch import Tensor

from jackfield.core.api.experts import Routing
from jackfield.core.bench.machine import measure_ceilings
from jackfield.plugins.kernels.torch_ops.experts import TorchExperts
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.experts import TritonExperts
from jackfield.plugins.kernels.triton.experts_align import align, sum_up
from jackfield.plugins.kernels.triton.experts_tiles import down_tiles, gate_up_tiles
from jackfield.plugins.kernels.triton.experts_vectors import down_vectors, gate_up_vectors
from jackfield.plugins.kernels.triton.experts_work import ExpertWork
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.route import TritonRoute
from jackfield.plugins.kernels.triton.support import TritonConfig

DEVICE, DTYPE = torch.device("cuda"), torch.bfloat16
LAYERS = 3
LAUNCHES = 6
ROUNDS = 3
WORKERS = 14
SHARED = 220 << 10
"""Bytes that the stages of a tile may take."""
FEWEST_ROWS, MOST_ROWS = 8, 128
TOKENS = (1, 4, 20, 64, 256)
FEW = 4
"""Tokens up to which nothing need be sorted."""
MANY = (256, 512, 1024, 4096)
"""Tokens of which grouped products may be faster."""
NEVER = 1 << 30
TOLERANCE = 3e-2
AHEADS = (0, 256, 512)
GATE_UP = [
    # outputs, block, warps, stages
    (32, 128, 4, 4), (32, 64, 4, 6), (32, 256, 4, 3), (16, 128, 4, 4), (16, 256, 4, 3),
    (64, 64, 4, 4), (64, 128, 4, 3), (64, 64, 8, 5),
]  # fmt: skip
DOWN = [
    (64, 128, 4, 4), (64, 64, 4, 6), (64, 256, 4, 3), (32, 128, 4, 4), (32, 256, 4, 3),
    (128, 64, 4, 4), (128, 128, 8, 3), (128, 64, 8, 5),
]  # fmt: skip
WIDE = [(64, 64, 8, 4), (64, 64, 8, 3), (64, 128, 8, 2), (128, 64, 8, 3)]
"""Of 64 rows or more."""
VECTORS = [
    # outputs, unrolled, warps
    (1, 2, 4), (2, 1, 4), (2, 2, 4), (2, 2, 8), (2, 4, 2), (4, 1, 4), (4, 2, 4), (4, 4, 2),
    (4, 2, 2), (1, 4, 4), (1, 8, 8), (2, 8, 8), (2, 8, 4), (4, 8, 4), (1, 8, 4),
]  # fmt: skip
Config = Mapping[str, int]
Table = dict[str, Config]


class Shape(NamedTuple):
    experts: int
    top: int
    hidden: int
    width: int


SHAPES = {"V2-Lite": Shape(64, 6, 2048, 1408), "30B-A3B": Shape(128, 8, 2048, 768)}


class Part(NamedTuple):
    """One of the kernels of a call. share: of an expert's weights that it reads."""

    name: str
    share: float


PARTS = (Part("gate_up", 2 / 3), Part("down", 1 / 3))


class Trial(NamedTuple):
    """Microseconds of one launch, and whether it gave what it should."""

    part: str
    config: Config
    time: float
    right: bool


class Fixed(Configs):
    """The shipped table with other entries for this."""

    def __init__(self, entries: Table) -> None:
        super().__init__("experts")
        self._entries = entries

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> Config:
        own = self._entries.get(shape)
        return super().find(shape, dtype, device) if own is None else own


def tile(rows: int, base: tuple[int, ...], together: int) -> Config:
    outputs, block, warps, stages = base
    return {
        "ROWS": rows, "OUTPUTS": outputs, "BLOCK": block, "TOGETHER": together,
        "num_warps": warps, "num_stages": stages,
    }  # fmt: skip


def tiles(part: str, load: int) -> Iterator[Config]:
    """For so many rows of an expert."""
    sides = 2 if part == "gate_up" else 1
    more = {} if part == "gate_up" else {"AHEAD": 0}
    for rows in sorted({min(max(load * times, FEWEST_ROWS), MOST_ROWS) for times in (1, 2, 4)}):
        bases = GATE_UP if part == "gate_up" else DOWN
        for base in WIDE if rows > 64 else bases[: 8 if rows < 64 else 6]:
            outputs, block, _, stages = base
            fits = (sides * outputs + rows) * block * 2 * stages <= SHARED
            if fits:
                yield {**tile(rows, base, 1 if rows <= 32 else 8), **more}


def vectors(part: str) -> Iterator[Config]:
    more = {} if part == "gate_up" else {"AHEAD": 0}
    for outputs, unrolled, warps in VECTORS:
        one = {"OUTPUTS": outputs, "UNROLL": unrolled, "num_warps": warps, "num_stages": 1}
        if outputs * warps <= 16 and (unrolled <= 4) == (part == "gate_up"):
            yield {**one, **more}


def make_layers(shape: Shape, count: int) -> list[tuple[Tensor, Tensor]]:
    experts, _, hidden, width = shape
    return [
        (random(experts, 2 * width, hidden) * hidden**-0.5, random(experts, hidden, width))
        for _ in range(count)
    ]


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=DTYPE, device=DEVICE)


def works(shape: Shape, tokens: int, layers: list[tuple[Tensor, Tensor]]) -> list[ExpertWork]:
    """Calls, each with a choice of its own."""
    found = []
    for number in range(LAUNCHES):
        ids = torch.rand(tokens, shape.experts, device=DEVICE).argsort(1)[:, : shape.top]
        shares = torch.rand(tokens, shape.top, device=DEVICE)
        x, layer = random(tokens, shape.hidden), layers[number % len(layers)]
        found.append(ExpertWork(x, ids.contiguous(), shares, None, *layer))
    return found


def touched(calls: list[ExpertWork]) -> float:
    """Bytes of weights of the experts that a call's tokens chose, on average."""
    distinct = sum(len(call.ids_TK.unique()) for call in calls) / len(calls)
    return 3 * distinct * calls[0].hidden * calls[0].width * 2


def timed(bodies: list[Callable[[], object]]) -> float:
    """Microseconds of one of them."""
    bodies[0]()

    def all_of_them() -> None:
        for body in bodies:
            body()

    return per_launch(all_of_them, len(bodies), ROUNDS)


def near(found: Tensor, wanted: Tensor) -> bool:
    distance = (found.float() - wanted.float()).norm() / wanted.float().norm()
    return bool(distance < TOLERANCE)


def tried(part: str, config: Config, calls: list[ExpertWork], table: Fixed) -> Trial:
    """One kernel of tiles alone."""
    rows = config["ROWS"]
    sorted_calls = [(call, align(call, rows, table)) for call in calls]
    first, aligned = sorted_calls[0]
    base = table.find("gate_up_1", DTYPE, DEVICE)
    wanted = gate_up_tiles(first, align(first, base["ROWS"], table), base)
    if part == "gate_up":
        right = near(gate_up_tiles(first, aligned, config), wanted)
        run = [lambda c=call, a=a: gate_up_tiles(c, a, config) for call, a in sorted_calls]
    else:
        plain = table.find("down_1", DTYPE, DEVICE)
        other = align(first, plain["ROWS"], table)
        made = down_tiles(first, other, wanted, plain)
        right = near(down_tiles(first, aligned, wanted, config), made)
        run = [lambda c=call, a=a: down_tiles(c, a, wanted, config) for call, a in sorted_calls]
    return Trial(part, config, timed(run), right)


def tried_vectors(part: str, config: Config, calls: list[ExpertWork], table: Fixed) -> Trial:
    """One kernel of vectors alone."""
    first = calls[0]
    wanted = gate_up_vectors(first, table.find("gate_up_vector", DTYPE, DEVICE))
    if part == "gate_up":
        right = near(gate_up_vectors(first, config), wanted)
        run = [lambda c=call: gate_up_vectors(c, config) for call in calls]
    else:
        made = down_vectors(first, wanted, table.find("down_vector", DTYPE, DEVICE))
        right = near(down_vectors(first, wanted, config), made)
        run = [lambda c=call: down_vectors(c, wanted, config) for call in calls]
    return Trial(part, config, timed(run), right)


def guarded(make: Callable[[], Trial], what: object) -> Trial | None:
    """One that does not fit must not hide the others."""
    try:
        found = make()
    except Exception as problem:
        print(f"{what}: {type(problem).__name__}: {problem}", file=sys.stderr)
        return None
    if not found.right:
        print(f"{what}: WRONG", file=sys.stderr)
        return None
    return found


def trials_of(calls: list[ExpertWork], table: Fixed) -> list[Trial]:
    found = []
    for part, _ in PARTS:
        for config in tiles(part, power_of_two(calls[0].load)):
            found.append(guarded(lambda c=config, p=part: tried(p, c, calls, table), config))
    return [one for one in found if one is not None]


def vector_trials_of(calls: list[ExpertWork], table: Fixed) -> list[Trial]:
    found = []
    for part, _ in PARTS:
        for config in vectors(part):
            found.append(
                guarded(lambda c=config, p=part: tried_vectors(p, c, calls, table), config)
            )
    return [one for one in found if one is not None]


def best_pair(trials: list[Trial]) -> dict[str, Trial]:
    """The fastest of each kernel, with tiles of as many rows."""
    by_rows: dict[int, dict[str, Trial]] = defaultdict(dict)
    for trial in sorted(trials, key=lambda one: -one.time):
        by_rows[trial.config.get("ROWS", 0)][trial.part] = trial
    whole = [pair for pair in by_rows.values() if len(pair) == len(PARTS)]
    return min(whole, key=lambda pair: sum(trial.time for trial in pair.values()))


def operation(entries: Table) -> TritonExperts:
    made = TritonExperts(TritonConfig())
    made._configs = Fixed(entries)
    return made


def whole(calls: list[ExpertWork], operation: Callable[..., Tensor]) -> float:
    return timed([lambda c=call: operation(*c) for call in calls])


def limits(tokens: int, groups: int = NEVER) -> Config:
    """tokens: up to which nothing is sorted."""
    return {"TOKENS": tokens, "TIMES": 0, "GROUPS": groups}


def show_parts(pair: dict[str, Trial], read: float, bandwidth: float) -> None:
    for part, share in PARTS:
        time, config = pair[part].time, dict(pair[part].config)
        speed = read * share / time / 1e6
        print(f"      {part:8} {time:7.1f} us {speed:5.2f} TB/s {speed / bandwidth:5.1%}  {config}")


def show_whole(name: str, time: float, read: float, bandwidth: float, more: str = "") -> None:
    speed = read / time / 1e6
    print(f"    {name:22} {time:7.1f} us {speed:5.2f} TB/s {speed / bandwidth:5.1%}  {more}")


def with_ahead(calls: list[ExpertWork], entries: Table, name: str) -> tuple[float, Table]:
    """The whole operation, by the best of those that ask for weights early."""
    found = []
    for ahead in AHEADS:
        entry = {**entries[name], "AHEAD": ahead}
        some = {**entries, name: entry}
        found.append((whole(calls, operation(some)), ahead, some))
    time, ahead, best = min(found, key=lambda each: each[0])
    if ahead:
        print(f"      asking for {ahead} entries early saves {found[0][0] - time:.1f} us")
    return time, best


def sweep(
    shape: Shape, layers: list[tuple[Tensor, Tensor]], bandwidth: float
) -> dict[str, list[list[Trial]]]:
    """Trials by class of the table."""
    found: dict[str, list[list[Trial]]] = defaultdict(list)
    for tokens in TOKENS:
        calls = works(shape, tokens, layers)
        read = touched(calls)
        print(f"  {tokens} tokens, {calls[0].load} of an expert, {read / 1e6:.0f} MB")
        if tokens <= FEW:
            found["vector"].append(sweep_vectors(calls, read, bandwidth))
        found[str(power_of_two(calls[0].load))].append(sweep_tiles(calls, read, bandwidth))
        show_whole("by the shipped table", whole(calls, operation({})), read, bandwidth)
        show_whole("torch", whole(calls, TorchExperts()), read, bandwidth)
        sys.stdout.flush()
    return found


def sweep_vectors(calls: list[ExpertWork], read: float, bandwidth: float) -> list[Trial]:
    trials = vector_trials_of(calls, Fixed({}))
    pair = best_pair(trials)
    show_parts(pair, read, bandwidth)
    entries: Table = {"limits": limits(calls[0].tokens)}
    entries |= {f"{part}_vector": pair[part].config for part, _ in PARTS}
    time, entries = with_ahead(calls, entries, "down_vector")
    show_whole("vectors", time, read, bandwidth)
    check(operation(entries)(*calls[0]), TorchExperts()(*calls[0]))
    return trials


def sweep_tiles(calls: list[ExpertWork], read: float, bandwidth: float) -> list[Trial]:
    trials = trials_of(calls, Fixed({}))
    pair = best_pair(trials)
    show_parts(pair, read, bandwidth)
    if calls[0].tokens > 1:  # one is never sorted
        name = str(power_of_two(calls[0].load))
        entries: Table = {"limits": limits(0)}
        entries |= {f"{part}_{name}": pair[part].config for part, _ in PARTS}
        time, entries = with_ahead(calls, entries, f"down_{name}")
        show_whole("tiles", time, read, bandwidth, small_parts(calls, pair))
        check(operation(entries)(*calls[0]), TorchExperts()(*calls[0]))
    return trials


def check(found: Tensor, wanted: Tensor) -> None:
    if not near(found, wanted):
        print("the whole operation: WRONG", file=sys.stderr)


def small_parts(calls: list[ExpertWork], pair: dict[str, Trial]) -> str:
    """What choosing, sorting and summing take."""
    rows, table = pair["gate_up"].config["ROWS"], Configs("experts")
    aligned = align(calls[0], rows, table)
    made = random(calls[0].assignments, calls[0].hidden)
    sorting = timed([lambda c=call: align(c, rows, table) for call in calls])
    summing = timed([lambda c=call: sum_up(made, aligned.place_A, c, table) for call in calls])
    routing = Routing(num_experts=calls[0].experts, top_k=calls[0].top)
    logits = torch.randn(calls[0].tokens, calls[0].experts, device=DEVICE)
    route = TritonRoute(TritonConfig())
    choosing = timed([lambda: route(logits, routing) for _ in calls])
    return f"choosing {choosing:.1f} us, sorting {sorting:.1f} us, summing {summing:.1f} us"


def split(shape: Shape, layers: list[tuple[Tensor, Tensor]]) -> None:
    """Where torch's grouped products become faster than tiles."""
    for tokens in MANY:
        calls = works(shape, tokens, layers)
        own = whole(calls, operation({"limits": limits(0)}))
        groups = whole(calls, operation({"limits": limits(0, 0)}))
        others = whole(calls, TorchExperts())
        flops = 6 * calls[0].assignments * shape.hidden * shape.width
        print(
            f"  {tokens:5} tokens {calls[0].load:4} of an expert  tiles {own:8.1f} us  "
            f"groups {groups:8.1f} us  torch {others:8.1f} us  "
            f"{flops / min(own, groups) / 1e6:6.1f} TFLOP/s"
        )


def chosen(results: list[list[Trial]], part: str, rows: int | None) -> tuple[float, Config]:
    """The configuration with the least sum of times, each in units of its trial's best."""
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for trials in results:
        own = [one for one in trials if one.part == part]
        own = [one for one in own if rows is None or one.config["ROWS"] == rows]
        best = min((one.time for one in own), default=1.0)
        for one in own:
            sums[json.dumps(one.config)] += one.time / best
            counts[json.dumps(one.config)] += 1
    full = [name for name in sums if counts[name] == len(results)]
    name = min(full or sums, key=sums.__getitem__)
    return sums[name], json.loads(name)


def table_of(results: Mapping[str, list[list[Trial]]]) -> Table:
    table: Table = {}
    for name, trials in results.items():
        rows: int | None = None
        if name != "vector":
            pairs = [best_pair(some)["gate_up"].config["ROWS"] for some in trials]
            rows = max(set(pairs), key=pairs.count)
        for part, _ in PARTS:
            table[f"{part}_{name}"] = chosen(trials, part, rows)[1]
    return table


def as_json(table: Table, architecture: str) -> str:
    """One line an entry, of bfloat16 and float16."""
    lines = [
        f'  "{name}": {{"any": {{"{architecture}": {json.dumps(config)}}}}}'
        for name, config in table.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def small_work(shape: Shape, tokens: int) -> ExpertWork:
    """All choose the first expert, which is the only one that is there."""
    x = random(tokens, shape.hidden)
    ids = torch.zeros(tokens, shape.top, dtype=torch.int64, device=DEVICE)
    gate_up = random(1, 2 * shape.width, shape.hidden).expand(shape.experts, -1, -1)
    down = random(1, shape.hidden, shape.width).expand(shape.experts, -1, -1)
    return ExpertWork(x, ids, torch.ones(ids.shape, device=DEVICE), gate_up, down, None)


def compile_one(kind: str, shape: Shape, part: str, config: Config) -> None:
    """In a process of its own, so that the compiled kernel is on the disk afterwards."""
    work, table = small_work(shape, 2), Configs("experts")
    hidden = random(2 * shape.top, shape.width)
    if kind == "vector" and part == "gate_up":
        gate_up_vectors(work, config)
    elif kind == "vector":
        down_vectors(work, hidden, config)
    elif part == "gate_up":
        gate_up_tiles(work, align(work, config["ROWS"], table), config)
    elif part == "down":
        down_tiles(work, align(work, config["ROWS"], table), hidden, config)
    else:
        work = small_work(shape, 1 << 10)
        aligned = align(work, config["ROWS"], table)
        sum_up(random(work.assignments, shape.hidden), aligned.place_A, work, table)
        logits = torch.zeros(2, shape.experts, device=DEVICE)
        TritonRoute(TritonConfig())(logits, Routing(num_experts=shape.experts, top_k=shape.top))


def jobs() -> dict[str, tuple[str, Shape, str, Config]]:
    """Every kernel once: tiles are the same for all widths that their blocks divide."""
    found = {}
    for shape in SHAPES.values():
        loads = {power_of_two(-(-tokens * shape.top // shape.experts)) for tokens in TOKENS}
        for part, _ in PARTS:
            inputs = shape.hidden if part == "gate_up" else shape.width
            for config in (config for load in loads for config in tiles(part, load)):
                for ahead in AHEADS if part == "down" else (0,):
                    some = {**config, "AHEAD": ahead} if part == "down" else config
                    even = inputs % config["BLOCK"] == 0
                    found[f"{part} {even} {json.dumps(some)}"] = ("tile", shape, part, some)
            for config in vectors(part):
                for ahead in AHEADS if part == "down" else (0,):
                    some = {**config, "AHEAD": ahead} if part == "down" else config
                    found[f"{part} {shape} {json.dumps(some)}"] = ("vector", shape, part, some)
        for rows in (8, 16, 32, 64, 128):
            found[f"others {shape} {rows}"] = ("others", shape, "others", {"ROWS": rows})
    return found


def main() -> None:
    torch.manual_seed(0)
    compile_jobs(compile_one, jobs(), WORKERS)
    began = perf_counter()
    bandwidth = measure_ceilings(DEVICE, DTYPE).read / 1e12
    print(f"reads {bandwidth:.2f} TB/s")
    results: dict[str, list[list[Trial]]] = defaultdict(list)
    for name, shape in SHAPES.items():
        print(f"\n{name}: {shape}")
        layers = make_layers(shape, LAYERS)
        for key, trials in sweep(shape, layers, bandwidth).items():
            results[key] += trials
        split(shape, layers)
        del layers
        torch.cuda.empty_cache()
    major, minor = torch.cuda.get_device_capability()
    text = as_json(table_of(results), f"sm_{major}{minor}")
    print(f"\n{text}\n{perf_counter() - began:.0f} s on the GPU")
    folder = os.environ.get("OUT")
    if folder:
        Path(folder, "experts.json").write_text(text)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
