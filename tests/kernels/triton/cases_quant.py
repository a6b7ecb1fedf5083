"""The kernels of quantized products: every entry of the table, and every special form."""

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Any, NamedTuple

from compiling import Case

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.quant_dense_kernel import quant_dense_kernel
from jackfield.plugins.kernels.triton.quant_kernel import quant_tile_kernel
from jackfield.plugins.kernels.triton.quant_matmul import tiles_of

CONSTEXPR = "constexpr"
MIDDLES = {4: 8, 8: 128, 1: 0}
"""By kind, as the kernels count them."""
NARROW = {"TILES": 1, "PARTS": 8, "BLOCKS": 1, "ROWS": 8, "SPLITS": 2, "AHEAD": 256}
NARROW |= {"num_warps": 8, "num_stages": 1}
PAIRS = {**NARROW, "PARTS": 4}
"""Half of its warps have outputs of gate, the others of up."""


class Weight(NamedTuple):
    """group: 0 = all inputs."""

    kind: int
    group: int
    zeros: bool = False
    sharing: int = 1
    scale: str = "fp16"


AWQ = Weight(4, 128, zeros=True)
GPTQ = Weight(4, 128)
FINE = Weight(4, 32, zeros=True)
INT8 = Weight(8, 0)
CHANNEL = Weight(1, 0, scale="fp32")
BLOCK = Weight(1, 128, sharing=128, scale="fp32")
ALL = (AWQ, GPTQ, FINE, INT8, CHANNEL, BLOCK)


def tile(
    weight: Weight,
    rows: int,
    config: Mapping[str, int],
    arch: int,
    element: str = "bf16",
    biased: bool = False,
    even: bool = True,
    extra: bool = False,
    gated: bool = False,
) -> Case:
    """gated: the outputs are gate and up."""
    config = dict(config)
    height, splits = min(config.pop("ROWS"), max(rows, 8)), config.pop("SPLITS")
    inputs = 128 if weight.kind == 4 else 64
    config["TILES"] = tiles_of(weight.group, inputs, height, config)
    name = f"quant_{'_'.join(map(str, weight))}_{height}_{element}_{arch}_{biased}_{even}_"
    middle = MIDDLES[weight.kind]
    constants = {
        "KIND": weight.kind, "MIDDLE": middle, "GROUP": weight.group, "SHARING": weight.sharing,
        "BASE": -128 if weight.kind == 4 and element == "bf16" else middle,
        "ZEROS": weight.zeros, "BIASED": biased, "EVEN": even,
        "EXACT": False, "ASSEMBLY": arch, "ROWS": height, "EARLY": arch >= 90,
        "SECTION": gcd(weight.group, inputs), "SPLIT": splits > 1,
        "ABREAST": config["num_warps"] // config["PARTS"], "GATED": gated, **config,
    }  # fmt: skip
    if not gated:
        constants["apart"] = 1
    zeros = "*u8" if weight.zeros else "*i16"
    bias = f"*{element}" if biased else "*i16"
    types = f"*{element} *i16 *{weight.scale} {zeros} {bias} *{element} *fp32 *i32 "
    types += f"i32:1 i32:16 i32:16 i32:16 i32:16{' i32:16' * gated}"
    name = name.replace("quant", "quant_gated") if gated else name
    name += "_".join(map(str, (splits > 1, *config.values())))
    return case(name, quant_tile_kernel, types, constants,
                arch, extra)  # fmt: skip


def dense(weight: Weight, element: str, arch: int) -> Case:
    name = f"quant_dense_{'_'.join(map(str, weight))}_{element}_{arch}"
    constants = {
        "KIND": weight.kind, "MIDDLE": MIDDLES[weight.kind], "GROUP": weight.group,
        "SHARING": weight.sharing, "ZEROS": weight.zeros, "WHOLE": weight.group % 32 == 0,
        "NATIVE": arch >= 89, "OUTPUTS": 64, "num_warps": 4, "num_stages": 1,
    }  # fmt: skip
    zeros = "*u8" if weight.zeros else "*i16"
    types = f"*i16 *{weight.scale} {zeros} *{element} i32:1 i32:1 i32:16 i32:16 i32:16"
    return case(name, quant_dense_kernel, types, constants, arch, False)


def case(
    name: str, kernel: Any, types: str, constants: Mapping[str, Any], arch: int, extra: bool
) -> Case:
    """types: those of the arguments in front, then come the constants."""
    values = dict(constants)
    warps, stages = values.pop("num_warps"), values.pop("num_stages")
    signature = dict(zip(kernel.arg_names, types.split(), strict=False))
    assert set(kernel.arg_names) - set(signature) == set(values), name
    signature |= dict.fromkeys(values, CONSTEXPR)
    return Case(name, kernel, signature, values, warps, stages, None, (arch,), extra=extra)


def shipped(table: str, gated: bool) -> Iterator[Case]:
    """An entry may be used on newer architectures; one that is empty launches nothing."""
    for entry in filter(lambda entry: entry.config, Configs(table).entries()):
        label, number, *_ = entry.shape.split("_")
        rows = int(number)
        archs = (80, 90) if entry.architecture == "sm_80" else (90,)
        weights = {"4": (AWQ, GPTQ), "4s": (FINE,), "8": (INT8, CHANNEL, BLOCK)}[label]
        for arch in archs:
            for weight in weights:
                ends = rows in (1, 64) and weight in (AWQ, FINE, BLOCK)
                extra = not ends and (rows > 1 or weight in (GPTQ, INT8))
                yield tile(weight, rows, entry.config, arch, extra=extra, gated=gated)


def special() -> Iterator[Case]:
    for arch in (80, 90):
        for weight in (AWQ, Weight(8, 0, zeros=True), CHANNEL):
            yield tile(weight, 8, NARROW, arch, "fp16", biased=True, even=False)
            yield tile(weight, 8, PAIRS, arch, "fp16", biased=True, even=False, gated=True)
        yield dense(AWQ, "bf16", arch)
        yield dense(BLOCK, "bf16", arch)
        yield dense(Weight(4, 20, zeros=True), "fp32", arch)


def cases() -> list[Case]:
    """Shapes of the tables that are served alike are one case."""
    plain, gated = shipped("quant", gated=False), shipped("quant_gate_up", gated=True)
    return list({each.name: each for each in (*plain, *gated, *special())}.values())
