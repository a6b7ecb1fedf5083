"""The kernels of decodes as they are shipped: every entry of the table, and every special form."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from compiling import Case

from jackfield.plugins.kernels.triton.attention_step import SMALLEST
from jackfield.plugins.kernels.triton.configs import Config, Configs, Entry
from jackfield.plugins.kernels.triton.decode_kernel import decode_kernel
from jackfield.plugins.kernels.triton.decode_launch import parts_at_once
from jackfield.plugins.kernels.triton.decode_shares_kernel import decode_shares_kernel
from jackfield.plugins.kernels.triton.kv_write_kernel import kv_write_kernel
from jackfield.plugins.kernels.triton.merge_kernel import merge_kernel, merge_shares_kernel
from jackfield.plugins.kernels.triton.shares import PLACES, WARPS
from jackfield.plugins.kernels.triton.shares_kernel import shares_kernel
from jackfield.plugins.kernels.triton.work_list import WARPS as LIST_WARPS
from jackfield.plugins.kernels.triton.work_list import parts_of
from jackfield.plugins.kernels.triton.work_list_kernel import work_list_kernel

INTEGERS = [
    "tables",
    "items",
    "group_items",
    "counters",
    "order",
    "rank",
    "size",
    "shared",
    "lens",
    "first_partials",
    "num_partials",
    "shared_partials",
    "shares",
]
FLOATS = ["partials", "sums", "k_scales", "v_scales"]


class Form(NamedTuple):
    """kind: of encoding, with the dtypes of the model and of what is stored."""

    model: str = "bf16"
    stored: str = "bf16"
    kind: int = 0
    group: int = 4
    block_size: int = 16
    windowed: bool = False
    last: bool = False


CODES = {"float8_e4m3fn": 1, "float8_e5m2": 2, "int8": 3}
"""Kinds by the types of the table. Pairs of codes are taken as int16."""
SPECIAL = [
    Form(),
    Form(model="fp16", stored="fp16", group=8, block_size=128, last=True),
    Form(windowed=True, group=1, last=True),
    Form(group=7),
    Form(group=64),
    Form(stored="i16", kind=2),
    Form(stored="i16", kind=3, last=True),
]


def cases() -> Iterator[Case]:
    found = {case.name: case for case in decodes()}  # many are alike
    yield from (case._replace(extra=is_extra(name)) for name, case in found.items())
    yield from (work_list(64, *shape) for shape in ((32, 0, 0), (256, 0, 1), (256, 1, 0)))
    yield from (shares(64, rows) for rows in (32, 256))
    yield from (merge(group, head_dim, 64) for group, head_dim in ((2, 128), (20, 64)))
    yield from (merge(group, head_dim) for group, head_dim in ((2, 128), (7, 64), (16, 256)))
    yield from (kv_write(*form) for form in (("bf16", 0), ("bf16", 1), ("fp16", 2), ("fp32", 3)))


def is_extra(name: str) -> bool:
    """Heads of 64, wide ones of float32, and e5m2 are much like heads of 128 and e4m3."""
    _, _, rest = name.partition("_sm_")
    head_dim = rest[3:].partition("/")[0]
    return head_dim == "64" or (head_dim == "256" and "fp32" in name) or "/i16/2/" in name


def decodes() -> Iterator[Case]:
    for entry in Configs("decode").entries():
        yield from of(entry)
    for arch in (80, 90):
        yield decode(look_up("many_128", arch), 80, Form(last=True), arch)
        for form in SPECIAL:
            yield decode(look_up("many_128", arch), 128, form, arch)
        yield decode(look_up("many_64", arch), 64, SPECIAL[2], arch)


def look_up(shape: str, arch: int) -> Config:
    return Configs("decode").look_up(shape, "bfloat16", f"sm_{arch}")


def of(entry: Entry) -> Iterator[Case]:
    """For every architecture that gets it."""
    kind, head_dim = entry.shape.split("_")
    configs = Configs("decode")
    for arch in (80, 90):
        for dtype, form in forms(entry.dtype):
            if configs.look_up(entry.shape, dtype, f"sm_{arch}") == entry.config:
                case = decode(entry.config, int(head_dim), form, arch, kind == "group")
                yield case
                if "SHARES" in entry.config:
                    yield in_shares(case)


def forms(dtype: str) -> Iterator[tuple[str, Form]]:
    """What an entry for `dtype` may serve."""
    if dtype == "float32":
        yield dtype, Form(model="fp32", stored="fp32", last=True)
    if dtype == "any":
        yield "bfloat16", Form(last=True)
        yield "float8_e4m3fn", Form(stored="i16", kind=1, group=2, last=True)
    if dtype in CODES:
        yield dtype, Form(stored="i16", kind=CODES[dtype], group=2, last=True)


def decode(config: Config, head_dim: int, form: Form, arch: int, grouped: bool = False) -> Case:
    form = form._replace(last=form.last and bool(config["LAST"]))
    width = 1 << (head_dim - 1).bit_length()
    heads = 1 << (form.group - 1).bit_length()
    constexprs = {
        "KV_HEADS": 8, "GROUP": form.group, "HEAD_DIM": head_dim, "WIDTH": width,
        "BLOCK_SIZE": form.block_size, "ROWS": max(heads, config.get("ROWS", 16)),
        "TILE": config["TILE"], "STAGES": config["num_stages"], "KIND": form.kind,
        "ASSEMBLY": arch, "SCALED": form.kind > 0, "EXACT": form.model == "fp32",
        "WINDOWED": form.windowed, "GROUPED": grouped, "LAST": form.last and not grouped,
        "EARLY": arch >= 90, "HEADS": heads,
        "PARTS": parts_at_once(config["num_warps"], heads * width),
    }  # fmt: skip
    elements = {"q": form.model, "out": form.model, "k": form.stored, "v": form.stored}
    signature = signature_of(decode_kernel, elements, constexprs)
    numbers = "/".join(map(str, (head_dim, *config.values(), *form)))
    name = f"decode_{'group' if grouped else 'own'}_sm_{arch}_{numbers}"
    # Short-cuts of the compiler for products in float32 leave nothing to be pipelined.
    buffers = None if form.model == "fp32" else config["num_stages"] - 1
    warps, stages = config["num_warps"], config["num_stages"]
    most = config.get("REGISTERS") if constexprs["ROWS"] == SMALLEST else None
    return Case(name, decode_kernel, signature, constexprs, warps, stages, buffers, (arch,), most)


def in_shares(case: Case) -> Case:
    """The same by the kernel that gives each program a share."""
    kernel: Any = decode_shares_kernel
    both = {name: value for name, value in case.constexprs.items() if name in kernel.arg_names}
    constexprs = {**both, "ALIGN": min(both["TILE"], both["BLOCK_SIZE"])}
    elements = {name: case.signature[name][1:] for name in ("q", "out", "k", "v")}
    return case._replace(
        name=f"shares_{case.name}",
        kernel=kernel,
        signature=signature_of(kernel, elements, constexprs),
        constexprs=constexprs,
    )


def signature_of(
    kernel: Any, elements: dict[str, str], constexprs: dict[str, Any]
) -> dict[str, str]:
    return {name: type_of(name, elements, constexprs) for name in kernel.arg_names}


def type_of(name: str, elements: dict[str, str], constexprs: dict[str, Any]) -> str:
    if name in constexprs:
        return "constexpr"
    if name in elements:
        return "*" + elements[name]
    if name in INTEGERS:
        return "*i32"
    if name in FLOATS:
        return "*fp32"
    return {"slots": "*i64", "scale": "fp32"}.get(name, "i32")


def work_list(tile: int, block: int, grouped: int, windowed: int) -> Case:
    constexprs = {
        "HEADS": 8, "TILE": tile, "ALIGN": 16, "GROUP_TILE": tile, "MEMBERS": 16, "BLOCK": block,
        "PARTS": parts_of(block), "GROUPED": bool(grouped), "WINDOWED": bool(windowed),
    }  # fmt: skip
    signature = signature_of(work_list_kernel, {}, constexprs)
    name = f"work_list {block} {grouped} {windowed}"
    return Case(name, work_list_kernel, signature, constexprs, LIST_WARPS[block])


def shares(tile: int, block: int) -> Case:
    constexprs = {
        "HEADS": 8, "TILE": tile, "ALIGN": 16, "BLOCK": block, "PLACES": PLACES, "WINDOWED": False,
    }  # fmt: skip
    signature = signature_of(shares_kernel, {}, constexprs)
    return Case(f"shares {block}", shares_kernel, signature, constexprs, WARPS)


def merge(group: int, head_dim: int, tile: int = 0) -> Case:
    """tile: of shares; 0 = the kernel for pieces."""
    kernel: Any = merge_shares_kernel if tile else merge_kernel
    heads = 1 << (group - 1).bit_length()
    constexprs = {
        "KV_HEADS": 8, "GROUP": group, "HEAD_DIM": head_dim, "WIDTH": head_dim, "HEADS": heads,
        "PARTS": parts_at_once(4, heads * head_dim), "EARLY": False,
        **({"TILE": tile, "ALIGN": 16, "WINDOWED": False} if tile else {}),
    }  # fmt: skip
    signature = signature_of(kernel, {"out": "bf16"}, constexprs)
    return Case(f"merge {group} {head_dim} {tile}", kernel, signature, constexprs)


def kv_write(dtype: str, kind: int) -> Case:
    constexprs = {
        "KV_HEADS": 8, "HEAD_DIM": 128, "WIDTH": 128, "BLOCK_SIZE": 16, "KIND": kind,
        "SCALED": kind > 0, "ROWS": 16,
    }  # fmt: skip
    pool = "u8" if kind else dtype
    elements = {"k": dtype, "v": dtype, "k_pool": pool, "v_pool": pool}
    signature = signature_of(kv_write_kernel, elements, constexprs)
    return Case(f"kv_write {dtype} {kind}", kv_write_kernel, signature, constexprs)
