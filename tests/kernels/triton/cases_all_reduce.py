"""Sums over ranks, as their table is shipped."""

from collections.abc import Iterator, Mapping
from typing import Any

from compiling import Case

from jackfield.plugins.kernels.triton.all_reduce_add_rms_norm_kernel import (
    all_reduce_add_rms_norm_kernel,
)
from jackfield.plugins.kernels.triton.all_reduce_kernel import all_reduce_kernel
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.launch import power_of_two

SIGNATURE = {
    "size": "i32:16", "rows": "i32", "rank": "i32", "eps": "fp32",
    "peers_ptr": "*i64", "calls_ptr": "*i64",
}  # fmt: skip


def case(
    name: str, kernel: Any, ranks: int, element: str, values: Mapping[str, Any], arch: int
) -> Case:
    sizes = Configs("all_reduce").look_up(f"ranks_{power_of_two(ranks)}", "any", f"sm_{arch}")
    constants = {
        "RANKS": ranks, "PROGRAMS": sizes["PROGRAMS"], "LANES": power_of_two(ranks),
        "SLAB": max(sizes["ONE"], sizes["TWO"]) // sizes["PROGRAMS"], "EARLY": arch >= 90, **values,
    }  # fmt: skip
    warps, stages = constants.pop("num_warps"), constants.pop("num_stages")
    types = dict.fromkeys(constants, "constexpr")
    signature = {
        argument: types.get(argument)
        or SIGNATURE.get(argument)
        or ("i32" if "stride" in argument else f"*{element}")
        for argument in kernel.arg_names
    }
    return Case(f"{name}_{arch}", kernel, signature, constants, warps, stages, archs=(arch,))


def sums(arch: int) -> Iterator[Case]:
    entry = Configs("all_reduce").look_up("sum", "any", f"sm_{arch}")
    for ranks, element, two in ((2, "bf16", False), (8, "bf16", True), (3, "fp32", True)):
        values = {"TWO": two, "EARLY": False, **entry}
        yield case(f"all_reduce_{ranks}", all_reduce_kernel, ranks, element, values, arch)


def norms(arch: int) -> Iterator[Case]:
    kernel = all_reduce_add_rms_norm_kernel
    chosen = ((2, "bf16", 4096, False), (4, "bf16", 3584, True), (8, "bf16", 8192, False),
              (8, "bf16", 16384, True), (2, "fp16", 64, False))  # fmt: skip
    for ranks, element, width, two in chosen:
        block = power_of_two(width)
        entry = Configs("all_reduce").look_up(f"norm_{block}", "any", f"sm_{arch}")
        values = {"WIDTH": width, "BLOCK": block, "TWO": two, **entry}
        name = f"all_reduce_add_rms_norm_{ranks}_{width}"
        yield case(name, kernel, ranks, element, values, arch)


MAIN = ("all_reduce_8", "norm_4_3584", "norm_8_16384")
"""Parts of the names of cases that stand for others."""


def cases() -> list[Case]:
    found = [one for arch in (80, 90) for one in (*sums(arch), *norms(arch))]
    return [one._replace(extra=not any(part in one.name for part in MAIN)) for one in found]
