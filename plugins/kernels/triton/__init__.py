"""Triton kernels for NVIDIA GPUs from Ampere on, compiled at start or at first use."""

from typing import TYPE_CHECKING

__all__ = ["NAMES", "TritonKernels"]

if TYPE_CHECKING:
    from jackfield.plugins.kernels.triton.plugin import NAMES, TritonKernels


def __getattr__(name: str) -> object:
    """Processes that compile kernels import this package, and need nothing of the plugin."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jackfield.plugins.kernels.triton import plugin

    return getattr(plugin, name)
