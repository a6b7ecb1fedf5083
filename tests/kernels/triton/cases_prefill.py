"""Prefill attention as it is shipped: every row of its table, and what else specialises it."""

from collections.abc import Iterator
from typing import Any

import triton.language as tl
from compiling import Case

from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.gather import TILE
from jackfield.plugins.kernels.triton.gather_kernel import combine_kernel, gather_kernel
from jackfield.plugins.kernels.triton.prefill_join import join_kernel
from jackfield.plugins.kernels.triton.prefill_kernel import prefill_kernel

TYPES = {"any": ("bf16", tl.bfloat16), "float32": ("fp32", tl.float32)}
PLAIN_HEADS = (64, 128, 256)
"""Smaller ones have the rows of 64."""
EXTRA = (
    "head_64/",
    "head_256/plain/rows_16/",
    "head_256/plain/rows_64/",
    "rows_16/float32/",
    "head_256/plain/rows_128/float32/",
    "/groups of 7",
    "/e5m2",
    *(f"encoded/rows_128/any/sm_{arch}/e4m3" for arch in (80, 90)),
    "/one head per tile/",
    "/large blocks/",
)
"""Parts of the names of cases that are much like others."""


def cases() -> list[Case]:
    found = [*_shipped(), *_special(), *_others()]
    return [case._replace(extra=any(part in case.name for part in EXTRA)) for case in found]


def _shipped() -> Iterator[Case]:
    for shape, dtype, arch, config in Configs("prefill").entries():
        head, _, rest = shape.partition("/")
        how, _, rows = rest.partition("/")
        head_dim = int(head.removeprefix("head_")) if rows else 0
        if head_dim not in PLAIN_HEADS:
            continue
        name = f"prefill/{shape}/{dtype}/{arch}"
        if dtype == "float32":
            if how == "plain" and head_dim > 64 and rows != "rows_64":
                yield _case(name, arch, config, dtype, head_dim)
        elif how == "plain":
            yield _case(name, arch, config, dtype, head_dim)
        elif head_dim == 128:
            yield from _masked_or_encoded(name, arch, config, how)


def _masked_or_encoded(name: str, arch: str, config: Config, how: str) -> Iterator[Case]:
    if how == "tight":
        yield _case(f"{name}/window", arch, config, "any", 128, WINDOW=4096)
        yield _case(f"{name}/groups of 7", arch, config, "any", 128, GROUP=7, PACK=7)
        return
    yield _case(f"{name}/e4m3", arch, config, "any", 128, KIND=1)
    if config["BLOCK_M"] == 128:
        yield _case(f"{name}/e5m2", arch, config, "any", 128, KIND=2)
        yield _case(f"{name}/int8 window", arch, config, "any", 128, KIND=3, WINDOW=4096)


def _special() -> Iterator[Case]:
    configs = Configs("prefill")
    for arch in ("sm_80", "sm_90"):
        for name, changes in SPECIAL.items():
            shape = f"head_128/plain/rows_{64 if 'SPLIT' in changes else 128}"
            config = configs.look_up(shape, "bfloat16", arch)
            yield _case(f"prefill/{name}/{arch}", arch, config, "any", 128, **changes)


SPECIAL: dict[str, dict[str, Any]] = {
    "split": {"SPLIT": True},
    "one head per tile": {"GROUP": 1, "PACK": 1},
    "large blocks": {"PAGE": 256},
    "heads of 80": {"HEAD_DIM": 80},
}


def _case(name: str, arch: str, config: Config, dtype: str, head_dim: int, **changes: Any) -> Case:
    element, dot = TYPES[dtype]
    number = int(arch.removeprefix("sm_"))
    encoded = "KIND" in changes
    pool = "*u8" if encoded else f"*{element}"
    constexprs = {
        "LANES": 8,
        "GROUP": 2,
        "PACK": 2,
        "HEAD_DIM": head_dim,
        "BLOCK_H": head_dim,
        "PAGE": 16,
        "BLOCK_M": config["BLOCK_M"],
        "BLOCK_N": config["BLOCK_N"],
        "WINDOW": 0,
        "KIND": 0,
        "NATIVE": number >= 89,
        "SCALED": encoded,
        "SPLIT": False,
        "DOT": dot,
        **changes,
    }
    tensors = dict.fromkeys(("q", "out"), f"*{element}") | dict.fromkeys("kv", pool)
    tensors |= dict.fromkeys(("table", "work"), "*i32")
    tensors |= dict.fromkeys(("k_scale", "v_scale", "parts", "parts_lse"), "*fp32")
    numbers = {name: "i32" for name in prefill_kernel.arg_names if "_stride_" in name}
    signature = tensors | numbers | {"scale": "fp32", "table_stride": "i32"}
    stages = config["num_stages"]
    # Products that read shared memory by themselves hold on to a buffer longer.
    reads_shared = number >= 90 and not encoded and config["BLOCK_M"] >= 64
    buffers = None if dtype == "float32" else stages - (not reads_shared)
    return Case(
        name,
        prefill_kernel,
        signature | dict.fromkeys(constexprs, "constexpr"),
        constexprs,
        config["num_warps"],
        stages,
        buffers,
        (number,),
    )


def _others() -> Iterator[Case]:
    lanes = {"LANES": 8, "GROUP": 2, "PACK": 2, "HEAD_DIM": 128, "BLOCK_H": 128, "BLOCK_M": 64}
    yield _plain("prefill/join", join_kernel, {"parts": "*fp32", "parts_lse": "*fp32"}, lanes)
    heads = {"HEAD_DIM": 128, "BLOCK_H": 128}
    copied = heads | {"PAGE": 16, "BLOCK_L": TILE, "NATIVE": False}
    for kind, pool in ((0, "*bf16"), (1, "*u8")):
        pools = dict.fromkeys("kv", pool) | {"k_scale": "*fp32", "v_scale": "*fp32"}
        constexprs = copied | {"KIND": kind, "SCALED": kind > 0}
        yield _plain(f"prefill/gather/{kind}", gather_kernel, pools, constexprs)
    for element in ("bf16", "fp16"):
        yield _combine(element, element, element, False)
    yield _combine("bf16", "bf16", "fp32", True)
    yield _combine("bf16", "fp32", "fp32", True)
    yield _combine("bf16", "fp32", "bf16", False)


def _combine(parts: str, first: str, out: str, kept: bool) -> Case:
    """Nothing is told of its arguments: there is one variant for all of them."""
    constexprs = {"HEAD_DIM": 128, "BLOCK_H": 128, "BLOCK_S": TILE, "KEPT": kept}
    types = dict.fromkeys("bcd", f"*{parts}:1") | {"a": f"*{first}:1", "out": f"*{out}:1"}
    types |= dict.fromkeys(("a_lse", "b_lse", "c_lse", "d_lse", "out_lse"), "*fp32:1")
    types |= dict.fromkeys(constexprs, "constexpr")
    signature = {name: types.get(name, "i32:1") for name in combine_kernel.arg_names}
    name = f"prefill/combine/{first} {parts} to {out}"
    return Case(name, combine_kernel, signature, constexprs)


def _plain(name: str, kernel: Any, tensors: dict[str, str], constexprs: dict[str, Any]) -> Case:
    """Of bf16 and int32 tensors beside those that are named."""
    known = dict.fromkeys(("out", "room"), "*bf16")
    known |= dict.fromkeys(("table", "joins"), "*i32") | tensors
    known |= dict.fromkeys(constexprs, "constexpr")
    signature = {argument: known.get(argument, "i32") for argument in kernel.arg_names}
    return Case(name, kernel, signature, constexprs)
