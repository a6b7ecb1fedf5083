"""The kernels of latent attention's decodes: every entry of the table, and every special form."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from compiling import Case

from jackfield.plugins.kernels.triton.configs import Config, Configs, Entry
from jackfield.plugins.kernels.triton.decode_launch import parts_at_once
from jackfield.plugins.kernels.triton.latent_decode import LatentGeometry, merged_heads
from jackfield.plugins.kernels.triton.latent_decode_kernel import MANY, latent_decode_kernel
from jackfield.plugins.kernels.triton.latent_merge_kernel import latent_merge_kernel

ARCHS = (80, 90)
RANK, ROTATED = 512, 64
KINDS = {"float8_e4m3fn": 1, "float8_e5m2": 2, "int8": 3}
"""Of encodings, by the types of the table. Pairs of codes are taken as int16."""
TYPES = {
    "q": "*bf16", "out": "*bf16", "latents": "*bf16", "scales": "*fp32", "partials": "*fp32",
    "sums": "*fp32", "tables": "*i32", "lens": "*i32", "shares": "*i32", "scale": "fp32",
}  # fmt: skip


class Form(NamedTuple):
    """dtype: in which table it is looked up. heads: of the model."""

    dtype: str
    heads: int
    block_size: int = 16


SPECIAL = [
    Form("float16", 16, 64),
    Form("bfloat16", 7),
    Form("bfloat16", 40),
    Form("bfloat16", 128, 64),
    Form("int8", 16, 128),
]


def cases() -> Iterator[Case]:
    found = {case.name: case for case in decodes()}  # many are alike
    yield from found.values()
    yield from (merge(group) for group in (1, 10, 16, 64))


def decodes() -> Iterator[Case]:
    for entry in Configs("latent").entries():
        yield from of(entry)
    for arch in ARCHS:
        for form in SPECIAL:
            yield decode(form, look_up(form, arch), arch)


def of(entry: Entry) -> Iterator[Case]:
    """For every architecture that gets it."""
    most = int(entry.shape.partition("_")[2])
    dtypes = ("bfloat16",) if entry.dtype == "any" else (entry.dtype,)
    for arch in ARCHS:
        for form in (Form(dtype, heads) for dtype in dtypes for heads in {most, 2 * most}):
            if most < 64 and form.heads > most:
                continue
            if look_up(form, arch) == entry.config:
                case = decode(form, entry.config, arch)
                # Codes of all types are much alike, and so are all groups of 32 heads.
                alike = form.heads > 32 and case.constexprs["ROWS"] <= 32
                yield case._replace(extra=entry.dtype == "float8_e5m2" or alike)


def look_up(form: Form, arch: int) -> Config:
    dtype = getattr(torch, form.dtype)
    shape = geometry(form.heads, dtype).shape
    return Configs("latent").look_up(shape, form.dtype, f"sm_{arch}")


def geometry(heads: int, dtype: torch.dtype = torch.bfloat16) -> LatentGeometry:
    return LatentGeometry(
        heads, RANK, ROTATED, 16, dtype, torch.device("cpu"), paired=dtype.itemsize == 1
    )


def decode(form: Form, config: Config, arch: int) -> Case:
    group = geometry(form.heads).group(config)
    kind, rows = KINDS.get(form.dtype, 0), max(1 << (group - 1).bit_length(), 16)
    warps, stages = config["num_warps"], config["num_stages"]
    exact = form.dtype == "float32"
    constexprs = {
        "GROUPS": form.heads // group, "GROUP": group, "RANK": RANK, "ROTATED": ROTATED,
        "WIDTH": RANK, "ROTATED_WIDTH": ROTATED, "BLOCK_SIZE": form.block_size, "ROWS": rows,
        "TILE": config["TILE"], "STAGES": stages, "KIND": kind, "ASSEMBLY": arch,
        "SCALED": kind > 0, "EXACT": exact, "EARLY": arch >= 90,
    }  # fmt: skip
    types = dict(TYPES)
    if exact or form.dtype == "float16":
        types |= dict.fromkeys(("q", "out", "latents"), "*fp32" if exact else "*fp16")
    if kind:
        types["latents"] = "*i16"
    signature = signature_of(latent_decode_kernel, types, constexprs)
    numbers = "/".join(map(str, (*config.values(), *form)))
    # Products of many rows read shared memory while the next tile comes.
    beside = arch >= 90 and rows >= MANY.value
    return Case(
        f"latent_sm_{arch}_{numbers}", latent_decode_kernel, signature, constexprs, warps, stages,
        None if exact else stages - (not beside), (arch,), config.get("REGISTERS"),
    )  # fmt: skip


def signature_of(
    kernel: Any, types: Mapping[str, str], constexprs: Mapping[str, Any]
) -> dict[str, str]:
    return {
        name: "constexpr" if name in constexprs else types.get(name, "i32")
        for name in kernel.arg_names
    }


def merge(group: int) -> Case:
    heads = merged_heads(group)
    constexprs = {
        "GROUPS": 2, "GROUP": group, "RANK": RANK, "WIDTH": RANK, "HEADS": heads,
        "PARTS": parts_at_once(4, heads * RANK), "TILE": 32, "EARLY": False,
    }  # fmt: skip
    signature = signature_of(latent_merge_kernel, TYPES, constexprs)
    return Case(f"latent merge {group}", latent_merge_kernel, signature, constexprs)
