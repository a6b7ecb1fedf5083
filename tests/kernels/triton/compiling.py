"""Compiles a kernel for a GPU that is not there, and reads what the assembler says of it.

Only for processes without TRITON_INTERPRET; `compile_all.py` is one.
"""

import io
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

DIVISIBLE = [["tt.divisibility", 16]]


class Case(NamedTuple):
    """One specialisation of a kernel, as it is shipped.

    signature: argument -> "*bf16", "i32", ..., or "constexpr". Pointers and whatever has "stride"
    in its name are multiples of 16, as they are in practice; ":16" behind a type says so of others,
    ":1" that one is not.
    min_buffers: of each pipelined load. archs: those that it is shipped for; empty = all.
    max_registers: of a thread; None = as many as the assembler likes. extra: much like another
    case, and so only compiled where all are.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    min_buffers: int | None = None
    archs: tuple[int, ...] = ()
    max_registers: int | None = None
    extra: bool = False


class Report(NamedTuple):
    """shared: bytes per program. registers: per thread. spilled: bytes of stores and loads.
    buffers: the fewest that a pipelined load has; 0 = nothing is pipelined."""

    shared: int
    registers: int
    spilled: int
    buffers: int
    ptx: str


def compile_case(case: Case, arch: int) -> Report:
    """arch: 80 or 90."""
    signature = {name: kind.split(":")[0] for name, kind in case.signature.items()}
    source = ASTSource(case.kernel, signature, dict(case.constexprs), attributes_of(case))
    options = {"num_warps": case.num_warps, "num_stages": case.num_stages}
    if case.max_registers is not None:
        options["maxnreg"] = case.max_registers
    compiled, log = _compile(source, GPUTarget("cuda", arch, 32), options)
    return Report(
        compiled.metadata.shared,
        _number(r"Used (\d+) registers", log),
        _number(r"(\d+) bytes spill stores", log) + _number(r"(\d+) bytes spill loads", log),
        _buffers(compiled.asm["ttgir"]),
        compiled.asm["ptx"],
    )


def attributes_of(case: Case) -> dict[tuple[int], Any]:
    return {
        (case.kernel.arg_names.index(name),): DIVISIBLE
        for name, kind in case.signature.items()
        if _divisible(name, kind)
    }


def _divisible(name: str, kind: str) -> bool:
    if ":" in kind:
        return kind.endswith(":16")
    return kind[0] == "*" or (kind[0] == "i" and "stride" in name)


def _compile(source: ASTSource, target: GPUTarget, options: dict[str, int]) -> tuple[Any, str]:
    """The kernel and the assembler's log, which is only there if nothing comes from a cache."""
    with triton.knobs.nvidia.scope(), triton.knobs.compilation.scope():
        triton.knobs.nvidia.dump_ptxas_log = True
        triton.knobs.compilation.always_compile = True
        with redirect_stdout(io.StringIO()) as log:
            compiled = triton.compile(source, target=target, options=options)
    return compiled, log.getvalue()


def _number(pattern: str, log: str) -> int:
    found = re.findall(pattern, log)
    assert found, f"the assembler's log has no {pattern!r}: {log}"
    return max(map(int, found))


def _buffers(ttgir: str) -> int:
    """Pipelined loads go to memory that is reserved empty; its first axis counts the buffers."""
    found = re.findall(r"local_alloc : \(\) -> !ttg\.memdesc<(\d+)x", ttgir)
    return min(map(int, found), default=0)
