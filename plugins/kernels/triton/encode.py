"""Stored keys and values on the device: the rule of `torch_ops.encoding`, bit by bit.

Codes are bytes here, whatever type the pool has: devices before sm_89 do not know e4m3.
"""

from typing import NamedTuple

import torch

from jackfield.core.api.encoding import KvEncoding
from jackfield.plugins.kernels.triton.encode_kernel import E4M3, E5M2, INT8, PLAIN
from jackfield.plugins.kernels.triton.support import capability

KNOWN_SINCE = 89
"""The first compute capability that has an instruction for e4m3."""


class Format(NamedTuple):
    """What the functions below know of a kind."""

    kind: int
    limit: float


FORMATS = {
    torch.float8_e4m3fn: Format(E4M3.value, 448.0),
    torch.float8_e5m2: Format(E5M2.value, 57344.0),
    torch.int8: Format(INT8.value, 127.0),
}


def kind_of(encoding: KvEncoding | None) -> int:
    """The kind that `encode` and `decode` want for what `encoding_reasons` lets pass."""
    return PLAIN.value if encoding is None else FORMATS[encoding.dtype].kind


def encoding_reasons(encoding: KvEncoding | None) -> list[str]:
    """Why keys and values cannot be stored like this; empty = they can."""
    if encoding is None:
        return []
    known = FORMATS.get(encoding.dtype)
    if known is None:
        return [f"it does not know how to store {encoding.dtype} ({encoding.name})"]
    if encoding.limit != known.limit:
        limits = f"{known.limit:g}, not at {encoding.limit:g}"
        return [f"it stores {encoding.dtype} ({encoding.name}) clamped at {limits}"]
    return []


def as_codes(stored: torch.Tensor) -> torch.Tensor:
    """Types of one byte as bytes, which is how the kernels take them; others as they are."""
    return stored.view(torch.uint8) if stored.dtype.itemsize == 1 else stored


def as_pairs(stored: torch.Tensor) -> torch.Tensor:
    """Types of one byte as int16, two neighbours in each; others as they are."""
    return stored.view(torch.int16) if stored.dtype.itemsize == 1 else stored


def knows_e4m3(device: torch.device) -> bool:
    """Whether compiled kernels convert e4m3 by an instruction of the device."""
    return capability(device) >= KNOWN_SINCE
