"""Prompts of latent attention as they are shipped: every row of their table, what they read, and
what is stored."""

from collections.abc import Iterator

import triton.language as tl
from compiling import Case

from jackfield.plugins.kernels.triton.configs import Configs, Entry
from jackfield.plugins.kernels.triton.latent_gather import TILE
from jackfield.plugins.kernels.triton.latent_gather_kernel import latent_gather_kernel
from jackfield.plugins.kernels.triton.latent_prefill_kernel import latent_prefill_kernel
from jackfield.plugins.kernels.triton.latent_write import write_sizes
from jackfield.plugins.kernels.triton.latent_write_kernel import latent_write_kernel

TYPES = {"any": ("bf16", tl.bfloat16), "float32": ("fp32", tl.float32)}
SIZES = {"RANK": 512, "ROTATED": 64}


def cases() -> list[Case]:
    return [*_shipped(), *_gathering(), *_writing()]


def _shipped() -> Iterator[Case]:
    for entry in Configs("latent_prefill").entries():
        if not entry.shape.startswith("dense/"):
            yield _case(entry)


def _case(entry: Entry) -> Case:
    shape, dtype, arch, config = entry
    head = int(shape.partition("/")[0].removeprefix("head_"))
    element, dot = TYPES[dtype]
    constexprs = {
        **SIZES,
        "HEADS": 16,
        "PLAIN": head,
        "VALUE": head,
        "BLOCK_W": 64,
        "BLOCK_P": head,
        "BLOCK_V": head,
        "BLOCK_M": config["BLOCK_M"],
        "BLOCK_N": config["BLOCK_N"],
        "DOT": dot,
    }
    kernel = latent_prefill_kernel
    types = dict.fromkeys(("q", "heads", "stored", "out"), f"*{element}")
    types |= {"work": "*i32", "parts": "*fp32", "parts_lse": "*fp32", "scale": "fp32"}
    types |= dict.fromkeys(constexprs, "constexpr")
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    name = f"latent_prefill/{shape}/{dtype}/{arch}"
    buffers = None if dtype == "float32" else 2
    return Case(
        name, kernel, signature, constexprs, config["num_warps"], config["num_stages"], buffers,
        (int(arch.removeprefix("sm_")),), extra=head == 64,
    )  # fmt: skip


def _gathering() -> Iterator[Case]:
    kernel = latent_gather_kernel
    for kind, native in ((0, False), (1, False), (1, True), (3, False)):
        constexprs = {
            **SIZES, "BLOCK_R": 512, "BLOCK_W": 64, "PAGE": 16, "BLOCK_L": TILE, "KIND": kind,
            "NATIVE": native, "SCALED": kind > 0,
        }  # fmt: skip
        types = {"pool": "*u8" if kind else "*bf16", "room": "*bf16", "scales": "*fp32"}
        types |= dict.fromkeys(("tables", "ranges"), "*i32")
        types |= {"table_stride": "i32:1"} | dict.fromkeys(constexprs, "constexpr")
        signature = {name: types.get(name, "i32") for name in kernel.arg_names}
        archs = (90,) if native else ()
        name = f"latent_gather/{kind}{' native' if native else ''}"
        yield Case(name, kernel, signature, constexprs, archs=archs, extra=kind == 3)


def _writing() -> Iterator[Case]:
    kernel = latent_write_kernel
    for kind, early, heads in ((0, False, 16), (0, True, 128), (1, False, 16), (3, False, 16)):
        sizes = write_sizes(heads, 512, 32)
        warps, stages = sizes.pop("num_warps"), sizes.pop("num_stages")
        constexprs = {
            **sizes, "PLAIN": 128, "INTERLEAVED": True, "BLOCK_SIZE": 16, "KIND": kind,
            "SCALED": kind > 0, "EARLY": early,
        }  # fmt: skip
        types = dict.fromkeys(("q", "stored", "norm"), "*bf16")
        types |= dict.fromkeys(("cos", "sin", "scales"), "*fp32")
        types |= {"pool": "*u8" if kind else "*bf16", "slots": "*i64", "eps": "fp32"}
        types |= dict.fromkeys(constexprs, "constexpr")
        signature = {name: types.get(name, "i32") for name in kernel.arg_names}
        archs = (90,) if early else ()
        name = f"latent_write/{kind}{' early' if early else ''}"
        yield Case(name, kernel, signature, constexprs, warps, stages, archs=archs, extra=kind == 3)
