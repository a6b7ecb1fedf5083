"""The shipped configurations of norms, rope, the gate and the fused operation."""

from collections.abc import Iterator, Mapping
from typing import Any

from compiling import Case

from jackfield.plugins.kernels.triton import add_rms_norm, qk_norm_rope_write, rms_norm, rope
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.silu_mul_kernel import silu_mul_kernel
from jackfield.plugins.kernels.triton.step_inputs_kernel import step_inputs_kernel

CONSTEXPR = "constexpr"


def case(name: str, kernel: Any, types: str, constants: Mapping[str, Any]) -> Case:
    """types: those of the arguments in front, then come the constants."""
    values = dict(constants)
    warps, stages = values.pop("num_warps"), values.pop("num_stages")
    if "EARLY" in kernel.arg_names:
        values = {"EARLY": False, **values}
    signature = dict(zip(kernel.arg_names, types.split(), strict=False))
    assert set(kernel.arg_names) - set(signature) == set(values), name
    signature |= dict.fromkeys(values, CONSTEXPR)
    return Case(name, kernel, signature, values, warps, stages)


def norms() -> Iterator[Case]:
    for entry in Configs("rms_norm").entries():
        width = int(entry.shape.split("_")[1])
        shape = {"INNER": 1, "WIDTH": width, "BLOCK": width, **entry.config}
        types = "*bf16 *bf16 *bf16 *bf16 i32 i32 i32 i32 i32 fp32"
        kernel = add_rms_norm.add_rms_norm_kernel
        yield case(f"add_rms_norm_{entry.shape}", kernel, types, shape)
    for shape, inner, width in (("many_128", 8, 128), ("many_4096", 1, 3584)):
        entry = Configs("rms_norm").look_up(shape, "bfloat16", "sm_90")
        values = {"INNER": inner, "WIDTH": width, "BLOCK": int(shape[5:]), **entry}
        types = "*bf16 *bf16 *bf16 i32 i32 i32 fp32"
        yield case(f"rms_norm_{shape}", rms_norm.rms_norm_kernel, types, values)


def gates() -> Iterator[Case]:
    for entry in Configs("silu_mul").entries():
        values = {"WIDTH": 3072, **entry.config}
        yield case(f"silu_mul_{entry.shape}", silu_mul_kernel, "*bf16 *bf16 i32", values)


def ropes() -> Iterator[Case]:
    types = "*bf16 *bf16 *fp32 *fp32 i32 i32 i32 i32 i32 i32"
    for entry in Configs("rope").entries():
        heads = {"NUM_HEADS": 32, "NUM_KV_HEADS": 8, "WIDTH": 64, "PAIRS": 64}
        yield case(f"rope_{entry.shape}", rope.rope_kernel, types, {**heads, **entry.config})


def fused(name: str, element: str, page: str, config: Mapping[str, int], **changes: Any) -> Case:
    x, weight, scale = f"*{element}", f"*{element}", "*fp32"
    types = (
        f"{x} i32 *fp32 i32 *fp32 i32 {weight} {weight} fp32 "
        f"*{page} *{page} i32 i32 i32 {scale} {scale} *i64"
    )
    values = {
        "NUM_HEADS": 32, "NUM_KV_HEADS": 8, "HEAD": 128, "WIDTH": 64, "PAIRS": 64, "REST": 1,
        "WHOLE": 128, "BLOCK_SIZE": 16, "NORMED": True, "KIND": 0, "SCALED": False,
    }  # fmt: skip
    kernel = qk_norm_rope_write.qk_norm_rope_write_kernel
    return case(f"qk_norm_rope_write_{name}", kernel, types, {**values, **changes, **config})


def fused_cases() -> Iterator[Case]:
    partial = {"HEAD": 256, "WIDTH": 32, "PAIRS": 32, "REST": 256, "WHOLE": 256}
    for entry in Configs("qk_norm_rope_write").entries():
        shape, config = entry.shape, entry.config
        yield fused(f"{shape}_norms", "bf16", "bf16", config)
        yield fused(f"{shape}_plain", "bf16", "bf16", config, NORMED=False)
        yield fused(f"{shape}_partial", "fp32", "fp32", config, **partial)
        for kind in (1, 2, 3):
            yield fused(f"{shape}_coded_{kind}", "bf16", "u8", config, KIND=kind, SCALED=True)


def inputs() -> Iterator[Case]:
    """Nothing is known of where the news lie."""
    news = ["*i32:1"] * 9
    types = [*news, "*i64:1", "*i32:1", "i32:1", *["*i64:1"] * 3, "*i32:1", "*i32:1", "i32:1"]
    for entry in Configs("step_inputs").entries():
        values = {"BLOCK_SIZE": 16, **entry.config}
        yield case("step_inputs", step_inputs_kernel, " ".join(types), values)


def early_cases() -> Iterator[Case]:
    """As launched on GPUs that let a launch begin before the one in front of it ends."""
    early = {"EARLY": True}
    entry = Configs("add_rms_norm").look_up("few_4096", "bfloat16", "sm_90")
    values = {"INNER": 1, "WIDTH": 4096, "BLOCK": 4096, **entry, **early}
    types = "*bf16 *bf16 *bf16 *bf16 i32 i32 i32 i32 i32 fp32"
    found = [case("add_rms_norm_early", add_rms_norm.add_rms_norm_kernel, types, values)]
    entry = Configs("silu_mul").look_up("few", "bfloat16", "sm_90")
    values = {"WIDTH": 3072, **entry, **early}
    found.append(case("silu_mul_early", silu_mul_kernel, "*bf16 *bf16 i32", values))
    entry = Configs("qk_norm_rope_write").look_up("few", "bfloat16", "sm_90")
    found.append(fused("early", "bf16", "bf16", entry, **early))
    for one in found:
        yield one._replace(archs=(90,))


MAIN = ("_early", "_norms", "few_partial", "few_coded_1", "_64", "_128", "_4096", "_32768")
"""Ends of the names of cases that stand for others."""


def cases() -> list[Case]:
    found = [*norms(), *gates(), *ropes(), *fused_cases(), *inputs(), *early_cases()]
    many = ("add_rms_norm", "qk_norm")
    return [
        case._replace(extra=case.name.startswith(many) and not case.name.endswith(MAIN))
        for case in found
    ]
