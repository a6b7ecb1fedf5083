"""The kernels of experts as they are shipped: every entry of the table, every special form, and the
kernel that chooses experts."""

from collections.abc import Iterator, Mapping
from typing import Any

from compiling import Case

from jackfield.core.api.experts import Routing
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.experts_align_kernel import align_kernel
from jackfield.plugins.kernels.triton.experts_sum_kernel import sum_kernel
from jackfield.plugins.kernels.triton.experts_tile_kernel import (
    down_tile_kernel,
    gate_up_tile_kernel,
)
from jackfield.plugins.kernels.triton.experts_vector_kernel import (
    down_vector_kernel,
    gate_up_vector_kernel,
)
from jackfield.plugins.kernels.triton.experts_vectors import unrolled
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.route import constants, warps
from jackfield.plugins.kernels.triton.route_kernel import route_kernel

CONSTEXPR = "constexpr"
ELEMENTS = {"any": "bf16", "float32": "fp32"}
WARP = {"bf16": 256, "fp16": 256, "fp32": 128}
"""Entries that a warp loads in one go."""
RARE = ("_1", "_2", "_8", "_16", "_32")
"""Classes of tiles between others."""
EARLY = (90,)
Archs = tuple[int, ...]
Config = Mapping[str, int]


def case(
    name: str, kernel: Any, types: str, constants: Mapping[str, Any], archs: Archs, buffers: int = 0
) -> Case:
    """types: those of the arguments in front, then come the constants."""
    values = dict(constants)
    warps, stages = values.pop("num_warps"), values.pop("num_stages")
    signature = dict(zip(kernel.arg_names, types.split(), strict=False))
    assert set(kernel.arg_names) - set(signature) == set(values), name
    signature |= dict.fromkeys(values, CONSTEXPR)
    full = f"{name}_{archs}_{'_'.join(str(value) for value in values.values())}_{warps}_{stages}"
    return Case(full, kernel, signature, values, warps, stages, buffers or None, archs)


def gate_up_tile(config: Config, element: str, archs: Archs, *, even: bool = True) -> Case:
    pointers = f"*{element} *{element} *i32 *i32 *{element}"
    types = f"{pointers} i32:1 i32:1 i32:16 i32:16 i32:16"
    return tile("experts_gate_up", gate_up_tile_kernel, types, config, element, archs, even)


def down_tile(config: Config, element: str, archs: Archs, *, even: bool = True) -> Case:
    types = f"*{element} *{element} *i32 *{element} i32:1 i32:1 i32:16 i32:16"
    return tile("experts_down", down_tile_kernel, types, config, element, archs, even)


def tile(
    name: str, kernel: Any, types: str, config: Config, element: str, archs: Archs, even: bool
) -> Case:
    values = {
        "EVEN": even, "EXACT": element == "fp32", "STAGES": config["num_stages"],
        "EARLY": archs == EARLY, **config,
    }  # fmt: skip
    buffers = config["num_stages"] - 1 if even else 0
    return case(f"{name}_{element}", kernel, types, values, archs, buffers)


def gate_up_vector(
    config: Config, element: str, archs: Archs, inputs: int = 2048, *, counted: bool = True
) -> Case:
    types = f"*{element} *i64 *{element} *{element} *i64 i32:16"
    block = config["num_warps"] * WARP[element]
    values = {
        "TOP": 8, "EXPERTS": 128, "INPUTS": inputs, "WIDTH": 768, "COUNTED": counted,
        "BLOCK": block, "EARLY": archs == EARLY, **unrolled(config, inputs, block),
    }  # fmt: skip
    return case(f"experts_gate_up_{element}", gate_up_vector_kernel, types, values, archs)


def down_vector(config: Config, element: str, archs: Archs, top: int, width: int) -> Case:
    types = f"*{element} *i64 *fp32 *{element} *{element}"
    padded = power_of_two(top)
    block = max(config["num_warps"] // padded, 1) * WARP[element]
    values = {
        "TOP": top, "EXPERTS": 128, "PADDED": padded, "WIDTH": width, "HIDDEN": 2048,
        "BLOCK": block, "EARLY": archs == EARLY, **unrolled(config, width, block),
    }  # fmt: skip
    return case(f"experts_down_{element}", down_vector_kernel, types, values, archs)


def align(config: Config, archs: Archs, experts: int, *, counted: bool = True) -> Case:
    values = {
        "TOP": 6, "EXPERTS": experts, "PADDED": max(power_of_two(experts), 32),
        "ROWS": 16, "COUNTED": counted, "EARLY": archs == EARLY, **config,
    }  # fmt: skip
    types = "*i64 *i32 *i32 *i32 *i32 *i64 i32:1 i32:1"
    return case("experts_align", align_kernel, types, values, archs)


def add_up(config: Config, element: str, archs: Archs, width: int) -> Case:
    values = {"WIDTH": width, "TOP": 8, "EARLY": archs == EARLY, **config}
    types = f"*{element} *i32 *fp32 *{element}"
    return case(f"experts_sum_{element}", sum_kernel, types, values, archs)


def routes() -> Iterator[Case]:
    """As models have them."""
    lite = Routing(num_experts=64, top_k=6, normalize=False)
    qwen = Routing(num_experts=128, top_k=8)
    groups = Routing(
        num_experts=256, top_k=8, scoring="sigmoid", scale=2.5, num_groups=8, chosen_groups=4,
        group_score="top2sum",
    )  # fmt: skip
    for routing, element in ((lite, "fp32"), (qwen, "bf16"), (groups, "fp32")):
        biased = routing.scoring == "sigmoid"
        for archs in ((80,), EARLY):
            values = {
                **constants(routing), "BIASED": biased, "SLOTTED": True, "EARLY": archs == EARLY,
                "num_warps": warps(routing), "num_stages": 1,
            }  # fmt: skip
            types = f"*{element} *fp32 *i64 *i64 *fp32 i32:16"
            yield case(f"route_{element}", route_kernel, types, values, archs)


def shipped(shape: str, config: Config, element: str, archs: Archs) -> Iterator[Case]:
    """Of one entry of the table."""
    if shape.startswith("align"):
        yield from (align(config, archs, experts) for experts in (60, 8, 256))
    elif shape == "sum":
        yield add_up(config, element, archs, 2048)
    elif shape == "gate_up_vector":
        yield gate_up_vector(config, element, archs)
    elif shape == "down_vector":
        yield from (
            down_vector(config, element, archs, top, width)
            for top, width in ((6, 1408), (8, 768), (2, 14336), (8, 2048))
        )
    elif shape.startswith("gate_up"):
        yield gate_up_tile(config, element, archs)
    elif shape.startswith("down"):
        yield down_tile(config, element, archs)


def from_table() -> Iterator[Case]:
    """An entry may be used on newer architectures, where launches begin early."""
    for entry in Configs("experts").entries():
        element = ELEMENTS[entry.dtype]
        for archs in ((80,), EARLY) if entry.architecture == "sm_80" else (EARLY,):
            found = list(shipped(entry.shape, entry.config, element, archs))
            rare = element == "fp32" or entry.shape.endswith(RARE)
            yield from (each._replace(extra=rare or each is not found[0]) for each in found)


def special() -> Iterator[Case]:
    table = Configs("experts")
    narrow = table.look_up("gate_up_4", "bf16", "sm_80")
    wide = table.look_up("down_64", "bf16", "sm_80")
    for archs in ((80,), EARLY):
        yield gate_up_tile(narrow, "fp16", archs, even=False)
        yield down_tile(wide, "fp16", archs, even=False)
        yield gate_up_tile(table.look_up("gate_up_4", "float32", "sm_80"), "fp32", archs)
    ahead = {**table.look_up("down_4", "bf16", "sm_90"), "AHEAD": 512}
    yield down_tile(ahead, "bf16", EARLY)
    vector = table.look_up("gate_up_vector", "bf16", "sm_80")
    yield gate_up_vector(vector, "fp16", (80,), 2000, counted=False)
    vector = {**table.look_up("down_vector", "bf16", "sm_90"), "AHEAD": 512}
    yield down_vector(vector, "bf16", EARLY, 8, 768)
    yield align(table.look_up("align_few", "bf16", "sm_80"), (80,), 64, counted=False)
    yield from routes()
    yield add_up(table.look_up("sum", "bf16", "sm_80"), "fp16", (80,), 1000)


def cases() -> list[Case]:
    """Classes of the table that are served alike are one case."""
    found = {each.name: each for each in (*special(), *from_table()) if not each.extra}
    return [*found.values(), *_extra(found)]


def _extra(found: Mapping[str, Case]) -> Iterator[Case]:
    others = {each.name: each for each in from_table() if each.extra}
    yield from (each for name, each in others.items() if name not in found)
