"""Writes a safetensors file one tensor at a time, so that memory holds only one of them."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BYTES_PER_BFLOAT16 = 2


class PendingTensor(NamedTuple):
    """A tensor whose values are computed only when their turn to be written comes."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.float32]]

    @property
    def num_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * BYTES_PER_BFLOAT16


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of `values` rounded to bfloat16, to nearest and ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    quiet_nan = (bits >> 16) | 0x40
    return np.where(np.isnan(values), quiet_nan, rounded).astype("<u2")


def write_bfloat16(
    path: Path, tensors: Iterable[PendingTensor], advance: Callable[[int], None]
) -> None:
    """Write `tensors` to `path` in bfloat16; `advance` gets the bytes written after each."""
    ordered = sorted(tensors, key=lambda tensor: tensor.name)
    with path.open("wb") as file:
        file.write(_header(ordered))
        for tensor in ordered:
            values = tensor.read()
            assert values.shape == tensor.shape, tensor.name
            file.write(to_bfloat16(values).tobytes())
            advance(tensor.num_bytes)


def _header(tensors: list[PendingTensor]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.num_bytes
        entries[tensor.name] = {
            "dtype": "BF16",
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
