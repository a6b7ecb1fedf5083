"""The kernels of products as they are shipped: every entry of the table, and every special form."""

from collections.abc import Iterator, Mapping
from typing import Any

from compiling import Case

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.linear_kernels import tile_kernel, vector_kernel

CONSTEXPR = "constexpr"
VECTOR = {"OUTPUTS": 4, "UNROLL": 2, "AHEAD": 0, "num_warps": 4, "num_stages": 1}
TILE = {"OUTPUTS": 16, "BLOCK": 64, "PARTS": 4, "SPLITS": 1, "AHEAD": 0}
TILE |= {"num_warps": 4, "num_stages": 4}
WHOLE = {**TILE, "OUTPUTS": 64, "PARTS": 1, "SPLITS": 4}


def case(
    name: str, kernel: Any, types: str, constants: Mapping[str, Any], archs: tuple[int, ...]
) -> Case:
    """types: those of the arguments in front, then come the constants."""
    values = dict(constants)
    warps, stages = values.pop("num_warps"), values.pop("num_stages")
    signature = dict(zip(kernel.arg_names, types.split(), strict=False))
    assert set(kernel.arg_names) - set(signature) == set(values), name
    signature |= dict.fromkeys(values, CONSTEXPR)
    buffers = stages - 1 if values.get("EVEN") else None
    return Case(name, kernel, signature, values, warps, stages, buffers, archs)


def vector(
    rows: int,
    width: int,
    config: Mapping[str, int],
    element: str = "bf16",
    archs: tuple[int, ...] = (),
    biased: bool = False,
) -> Case:
    name = f"linear_{rows}_{width}_{element}_{archs}_{'_'.join(map(str, config.values()))}"
    types = " ".join([f"*{element}"] * 4) + " i32:1 i32:16 i32"
    block = config["num_warps"] * (128 if element == "fp32" else 256)
    values = {"WIDTH": width, "BIASED": biased, "ROWS": rows, "BLOCK": block, **config}
    return case(name, vector_kernel, types, values, archs)


def tile(
    rows: int,
    config: Mapping[str, int],
    element: str = "bf16",
    archs: tuple[int, ...] = (),
    biased: bool = False,
    even: bool = True,
) -> Case:
    name = f"linear_{rows}_{element}_{archs}_{even}_{'_'.join(map(str, config.values()))}"
    partials = f"*{element}" if config["SPLITS"] == 1 else "*fp32"
    types = " ".join([f"*{element}"] * 4) + f" {partials} *i32 i32:1 i32:16 i32 i32:16"
    values = {
        "BIASED": biased, "EVEN": even, "EXACT": element == "fp32", "ROWS": rows,
        "STAGES": config["num_stages"], **config,
    }  # fmt: skip
    return case(name, tile_kernel, types, values, archs)


def shipped() -> Iterator[Case]:
    """An entry may be used on newer architectures; an empty one is torch's."""
    for entry in Configs("linear").entries():
        if not entry.config:
            continue
        rows, _, inputs = map(int, entry.shape.split("_"))
        archs = (80, 90) if entry.architecture == "sm_80" else (90,)
        if "PARTS" in entry.config:
            yield tile(max(rows, 8), entry.config, archs=archs)
        else:
            yield vector(rows, inputs, entry.config, archs=archs)


def special() -> Iterator[Case]:
    yield vector(1, 3000, VECTOR, "fp16", biased=True)
    yield vector(2, 4096, {**VECTOR, "num_warps": 8}, "fp32")
    yield vector(1, 2048, {**VECTOR, "AHEAD": 1024}, archs=(90,))
    for rows in (8, 64):
        yield tile(rows, TILE, "fp16", biased=True)
        yield tile(rows, WHOLE, biased=True, even=False)
    yield tile(16, {**TILE, "BLOCK": 16, "SPLITS": 4, "num_stages": 2}, "fp32")
    yield tile(16, {**WHOLE, "AHEAD": 512}, archs=(90,))


def cases() -> list[Case]:
    """Shapes of the table that are served alike are one case."""
    return list({each.name: each for each in (*shipped(), *special())}.values())
