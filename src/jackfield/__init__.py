"""Jackfield: an LLM inference engine whose scheduler, KV cache, kernels and models are plugins."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "LLM", "AsyncLLM", "CacheHints", "RequestContext", "RequestOutput", "SamplingParams",
    "__version__",
]  # fmt: skip

if TYPE_CHECKING:
    from jackfield.core.api import CacheHints, RequestContext, SamplingParams
    from jackfield.core.async_llm import AsyncLLM
    from jackfield.core.front.outputs import RequestOutput
    from jackfield.core.llm import LLM

_LAZY = {
    "LLM": "jackfield.core.llm",
    "AsyncLLM": "jackfield.core.async_llm",
    "CacheHints": "jackfield.core.api",
    "RequestContext": "jackfield.core.api",
    "RequestOutput": "jackfield.core.front.outputs",
    "SamplingParams": "jackfield.core.api",
}


def __getattr__(name: str) -> object:
    """Import the public names on first use, so that `import jackfield` stays free of torch."""
    if name not in _LAZY:
        raise AttributeError(f"module 'jackfield' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
