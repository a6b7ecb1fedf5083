"""The sampler's kernels, with the block sizes of their table and a vocabulary of 151936."""

from collections.abc import Iterator
from typing import Any

from compiling import Case

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.filter_kernels import cut_kernel, restrict_kernel
from jackfield.plugins.kernels.triton.narrow_kernels import STAGES
from jackfield.plugins.kernels.triton.sample_kernels import pick_kernel, summarize_kernel
from jackfield.plugins.kernels.triton.sample_part_kernel import pick_part_kernel

SIZE, PARTS = 2048, 64
UNUSED = {"fp32": 0, "fp16": 13, "bf16": 16}
TYPES = {
    "maxima": "*fp32",
    "sums": "*i32",
    "lows": "*fp32",
    "listed": "*i32",
    "cuts": "*fp32",
    "lasts": "*i32",
    "temperatures": "*fp32",
    "top_ks": "*i32",
    "top_ps": "*fp32",
    "min_ps": "*fp32",
    "seeds": "*i64",
    "positions": "*i64",
    "tokens": "*i64",
    "values": "*fp32",
    "first": "i32:16",
    "stride": "i32",
    "vocabulary": "i32:16",
    "blocks": "i32",
    "parts": "i32",
    "found": "*i64",
    "counts": "*i32",
}


def cases() -> list[Case]:
    found = [*_kernels("bf16"), *_kernels("fp32"), *_kernels("fp16")]
    main = ("_bf16", "summarize_filtered_fp32")
    return [case._replace(extra=not case.name.endswith(main)) for case in found]


def _kernels(dtype: str) -> Iterator[Case]:
    for draws, filtered in ((False, False), (True, False), (True, True)):
        flags = {"DRAWS": draws, "FILTERED": filtered}
        kind = "filtered" if filtered else "drawn" if draws else "greedy"
        yield _case(f"sample_summarize_{kind}", summarize_kernel, dtype, "summarize", flags)
        yield _case(f"sample_pick_{kind}", pick_kernel, dtype, "pick", {"SIZE": SIZE, **flags})
        if not filtered:
            part = {"SIZE": SIZE, "DRAWS": draws}
            yield _case(f"sample_part_{kind}", pick_part_kernel, dtype, "pick", part)
    sizes = {"SIZE": SIZE, "PARTS": PARTS, "UNUSED": UNUSED[dtype]}
    for rows in ("few", "many"):
        yield _case(f"sample_cut_{rows}", cut_kernel, dtype, f"cut_{rows}", sizes)
    yield _case("sample_restrict", restrict_kernel, dtype, "restrict", {})


def _case(name: str, kernel: Any, dtype: str, entry: str, flags: dict[str, int]) -> Case:
    config = dict(Configs("sample").look_up(entry, dtype, "sm_80"))
    launch = {key: config.pop(key) for key in ("num_warps", "num_stages")}
    constexprs = {**flags, **config}
    types = {**TYPES, "logits": f"*{dtype}"}
    signature = {arg: types.get(arg, "constexpr") for arg in kernel.arg_names}
    buffers = STAGES.value - 1 if kernel is cut_kernel else None
    return Case(f"{name}_{dtype}", kernel, signature, constexprs, **launch, min_buffers=buffers)
