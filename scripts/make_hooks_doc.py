"""Writes docs/hooks.md from the docstrings of core/api. With --check it only compares."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
API = ROOT / "core" / "api"
TARGET = ROOT / "docs" / "hooks.md"
INTRODUCTION = """\
# Hooks and contracts

This page is made from the docstrings of `jackfield.core.api` by `scripts/make_hooks_doc.py`; change
them, not it. How to use them is in [plugins.md](plugins.md).
"""
CHAPTERS = (
    ("Schedulers: hooks", "hooks", ("SchedulerHooks",)),
    ("Schedulers: disciplines", "scheduler",
     ("Discipline", "ClassState", "Work", "PolicyContext")),
    ("Schedulers: how long steps take", "predictor", ("Predictor",)),
    ("Schedulers: what a policy sees and returns", "advisor",
     ("LoadView", "StepView", "Shape", "QuotaView", "PrefillNeed", "VictimView", "PlanBuilder",
      "Verdict", "VerdictKind", "Event", "EventKind")),
    ("Requests", "request", ("RequestView", "RequestContext", "Trust")),
    ("Server", "hooks", ("ServerHooks",)),
    ("Server: what a plugin sees", "identity", ("Caller",)),
    ("Caches", "hooks", ("CacheHooks",)),
    ("Caches: what a plugin declares", "cache", ("CachePlugin", "CacheAxis", "CacheLayout")),
    ("Kernels", "kernel", ("KernelPlugin", "Operations", "AttentionKernel", "RmsNorm",
     "AddRmsNorm", "Rope", "SiluMul", "Linear")),
    ("Kernels: draws", "draw", ("Sample", "SampleBatch", "SamplePart", "Best")),
    ("Kernels: ranks", "collective",
     ("Collective", "Ranks", "AllReduce", "AllGather", "AllReduceAddRmsNorm")),
    ("Kernels: experts", "experts",
     ("Experts", "Routing", "Route", "ExpertHistogram", "CountsExperts")),
    ("Kernels: latent attention", "latent",
     ("LatentAttentionKernel", "LatentProjected", "LatentHeads", "LatentSizes")),
    ("Kernels: quantized weights", "quant",
     ("QuantMatmul", "QuantMatmulSiluMul", "QuantWeight", "QuantKind", "QuantizedWeights")),
    ("Kernels: quantized experts", "quant_experts", ("QuantExperts", "QuantExpert")),
    ("Kernels: what every operation answers", "operation", ("Operation", "OpSpec")),
    ("Kernels: what they are given", "kernel",
     ("KvSpec", "KvLayout", "KvTensor", "KvLayer", "BatchLimits", "AttnBatch")),
    ("Models", "model", ("Model", "Weights", "Attend", "ModelSpec", "LayerGroup", "ModelInputs",
     "Shard", "Split", "PartsLogits", "LogitsPart")),
)  # fmt: skip


def document() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, module, classes in CHAPTERS:
        known = _classes(API / f"{module}.py")
        parts.append(f"## {title}\n")
        parts.extend(_describe(known[name]) for name in classes)
    return "\n".join(parts)


def _classes(path: Path) -> dict[str, ast.ClassDef]:
    tree = ast.parse(path.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _describe(node: ast.ClassDef) -> str:
    parts = [f"### {node.name}\n", f"{_text(node)}\n"]
    fields = list(_fields(node))
    if fields:
        parts.append("\n".join(f"- `{field}`" for field in fields) + "\n")
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and not _is_hidden(method):
            parts.append(f"#### `{_signature(method)}`\n")
            parts.extend([f"{_text(method)}\n"] if ast.get_docstring(method) else [])
    return "\n".join(parts)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for entry in node.body:
        if isinstance(entry, ast.AnnAssign):
            yield _unquoted(entry)
        elif isinstance(entry, ast.Assign) and not _is_private(entry):
            yield ast.unparse(entry)


def _is_private(entry: ast.Assign) -> bool:
    return any(ast.unparse(target).startswith("_") for target in entry.targets)


def _is_hidden(method: ast.FunctionDef) -> bool:
    """Private, or special without a word to say for itself."""
    special = method.name in ("__init__", "__call__")
    return method.name.startswith("_") and not (special and _says_something(method))


def _says_something(method: ast.FunctionDef) -> bool:
    return method.name == "__call__" or ast.get_docstring(method) is not None


def _signature(method: ast.FunctionDef) -> str:
    arguments = method.args
    if not _is_marked(method, "staticmethod"):
        arguments.args = arguments.args[1:]
    returns = f" -> {_unquoted(method.returns)}" if method.returns else ""
    shown = "" if _is_marked(method, "property") else f"({_unquoted(arguments)})"
    return f"{method.name}{shown}{returns}"


def _is_marked(method: ast.FunctionDef, decorator: str) -> bool:
    return any(getattr(mark, "id", "") == decorator for mark in method.decorator_list)


class _Unquote(ast.NodeTransformer):
    """Annotations that are quoted, without their quotes."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = node.annotation and _plain(node.annotation)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = _plain(node.annotation)
        return node


def _plain(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ast.parse(node.value, mode="eval").body
    return node


def _unquoted(node: ast.AST) -> str:
    return ast.unparse(_plain(node) if isinstance(node, ast.expr) else _Unquote().visit(node))


def _text(node: ast.ClassDef | ast.FunctionDef) -> str:
    return ast.get_docstring(node) or ""


def main(arguments: list[str]) -> int:
    """Write the page, or say that the committed one is out of date."""
    page = document()
    if "--check" not in arguments:
        TARGET.write_text(page)
    elif not TARGET.is_file() or TARGET.read_text() != page:
        print("docs/hooks.md is out of date; run: python scripts/make_hooks_doc.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
