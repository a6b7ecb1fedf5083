"""The compiled kernels as Python functions, and why there are none where there are none."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from jackfield.plugins.kernels.cpu.build import load
from jackfield.plugins.kernels.cpu.compiler import CompileError

SUFFIXES = {torch.float32: "_float", torch.bfloat16: "_bfloat"}
"""The element types that the kernels are compiled for."""

_LETTERS: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "n": ctypes.c_int64,
    "i": ctypes.c_int,
    "f": ctypes.c_float,
}


class Library:
    """Compiled and loaded at the first question or call; one per plugin."""

    def __init__(self) -> None:
        self._handle: ctypes.CDLL | None = None
        self._reason: str | None = None

    def refusals(self, device: torch.device, dtype: torch.dtype | None = None) -> list[str]:
        """Why the kernels cannot serve; empty = they can."""
        if device.type != "cpu":
            return [f"the kernels run on CPUs, not on {device.type}"]
        if dtype is not None and dtype not in SUFFIXES:
            return [f"the kernels are made for float32 and bfloat16, not for {dtype}"]
        reason = self._load()
        return [reason] if reason else []

    def function(self, name: str, letters: str) -> Any:
        """letters: one per argument: p pointer, n int64, i int, f float."""
        reason = self._load()
        assert self._handle is not None, reason
        function = self._handle[name]
        function.argtypes = [_LETTERS[letter] for letter in letters]
        function.restype = None
        return function

    def _load(self) -> str:
        if self._reason is None:
            try:
                self._handle = load()
                self._reason = ""
            except CompileError as error:
                self._reason = str(error)
        return self._reason


class Functions(dict[torch.dtype, Any]):
    """One kernel for each element type, looked up in the library at first use."""

    def __init__(self, library: Library, name: str, letters: str) -> None:
        super().__init__()
        self._library = library
        self._name = name
        self._letters = letters

    def __missing__(self, dtype: torch.dtype) -> Any:
        function = self._library.function(self._name + SUFFIXES[dtype], self._letters)
        self[dtype] = function
        return function


def dense_rows(tensor: torch.Tensor) -> tuple[torch.Tensor, Sequence[int]]:
    """The tensor with its last axis dense, and its strides."""
    strides = tensor.stride()
    if strides[-1] == 1:
        return tensor, strides
    tensor = tensor.contiguous()
    return tensor, tensor.stride()
