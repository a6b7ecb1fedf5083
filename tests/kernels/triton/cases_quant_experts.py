"""The kernels of experts with quantized weights: every entry of the table, and special forms."""

from collections.abc import Iterator, Mapping
from math import gcd

from cases_quant import ALL, AWQ, BLOCK, FINE, GPTQ, INT8, MIDDLES, Weight, case
from compiling import Case

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.quant_experts_kernel import (
    quant_down_kernel,
    quant_gate_up_kernel,
)
from jackfield.plugins.kernels.triton.quant_experts_tiles import DIRECT, HEIGHTS
from jackfield.plugins.kernels.triton.quant_matmul import tiles_of

KERNELS = {"gate_up": quant_gate_up_kernel, "down": quant_down_kernel}
FEW = (AWQ, BLOCK)
"""Those that are compiled for every entry."""


def tile(
    part: str,
    weight: Weight,
    name: int,
    config: Mapping[str, int],
    arch: int,
    element: str = "bf16",
    even: bool = True,
    extra: bool = False,
) -> Case:
    """name: of a class in the table."""
    inputs, middle = 128 if weight.kind == 4 else 64, MIDDLES[weight.kind]
    height, direct = max(name, HEIGHTS[0]), name == DIRECT
    values = {
        **config, "KIND": weight.kind, "MIDDLE": middle, "GROUP": weight.group,
        "BASE": -128 if weight.kind == 4 and element == "bf16" else middle,
        "SHARING": weight.sharing, "ZEROS": weight.zeros, "EVEN": even, "EXACT": element == "fp32",
        "ASSEMBLY": 0 if element == "fp32" else arch, "ROWS": height, "EARLY": arch >= 90,
        "SECTION": gcd(weight.group, inputs), "DIRECT": direct, "EXPERTS": 128,
        "TILES": tiles_of(weight.group, inputs, height, config),
        "ABREAST": config["num_warps"] // config["PARTS"],
    }  # fmt: skip
    numbers = "i32:1 i32:1 i32:16 i32:16 i32:16 i32:16 i32:16"
    pointers = f"*{element} *i16 *{weight.scale} {'*u8' if weight.zeros else '*i16'} *i64"
    if part == "gate_up":
        values |= {"TOP": 8, "COUNTED": direct}
        types = f"{pointers} *i32 *i32 *i32 *i64 *{element} {numbers} i32:1"
    else:
        types = f"{pointers} *i32 *{element} {numbers}"
    described = "_".join(map(str, (*weight, *config.values())))
    full = f"quant_experts_{part}_{described}_{name}_{element}_{arch}_{even}"
    return case(full, KERNELS[part], types, values, arch, extra)


def shipped() -> Iterator[Case]:
    """An entry may be used on newer architectures."""
    for entry in Configs("quant_experts").entries():
        if entry.shape == "limits":
            continue
        part, bits, name = entry.shape.rsplit("_", 2)
        weights = (AWQ, GPTQ, FINE) if bits == "4" else [w for w in ALL if w.kind != 4]
        for arch in (80, 90) if entry.architecture == "sm_80" else (90,):
            for weight in weights:
                extra = weight not in FEW or int(name) in (8, 16)
                yield tile(part, weight, int(name), entry.config, arch, extra=extra)


def special() -> Iterator[Case]:
    table = Configs("quant_experts")
    for arch in (80, 90):
        for part in KERNELS:
            entry = table.look_up(f"{part}_4_32", "float16", f"sm_{arch}")
            yield tile(part, FINE, 32, entry, arch, "fp16", even=False)
            entry = table.look_up(f"{part}_8_1", "float16", f"sm_{arch}")
            yield tile(part, INT8, 1, entry, arch, "fp16", even=False)


def cases() -> list[Case]:
    """Classes of the table that are served alike are one case."""
    return list({each.name: each for each in (*shipped(), *special())}.values())
