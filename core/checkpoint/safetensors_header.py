"""What a safetensors file says it holds, checked against what it has."""

import json
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from jackfield.core.api.errors import CheckpointError

LENGTH_BYTES = 8
LFS_POINTER = b"version "


class StoredTensor(NamedTuple):
    """Where a tensor is. dtype: the name the format gives it, such as "BF16"."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    bytes: int


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Every tensor of the file by name. Raises CheckpointError for a file that is cut short."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            entries, start = _entries(file, stream, size)
    except OSError as error:
        raise CheckpointError(f"Cannot read {file}: {error.strerror or error}.") from error
    try:
        tensors = {name: _tensor(file, entry) for name, entry in entries.items()}
        end = start + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _damaged(file) from error
    if end > size:
        raise CheckpointError(
            f"{file} is cut short: its header speaks of {end} bytes, it has {size}, so the last "
            f"tensors, such as {_last(entries)!r}, are not whole; fetch it again."
        )
    return tensors


def _entries(file: Path, stream: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    prefix = stream.read(LENGTH_BYTES)
    if prefix == LFS_POINTER:
        raise CheckpointError(f"{file} is a Git LFS pointer, not the weights; run: git lfs pull")
    length = int.from_bytes(prefix, "little")
    if len(prefix) < LENGTH_BYTES or LENGTH_BYTES + length > size:
        raise CheckpointError(
            f"{file} is cut short, or no safetensors file: it has {size} bytes and its header "
            f"would end at {LENGTH_BYTES + length}; fetch it again."
        )
    try:
        entries = json.loads(stream.read(length))
    except ValueError as error:
        raise _damaged(file) from error
    if not isinstance(entries, dict):
        raise _damaged(file)
    entries.pop("__metadata__", None)
    return entries, LENGTH_BYTES + length


def _tensor(file: Path, entry: Any) -> StoredTensor:
    start, end = entry["data_offsets"]
    shape = tuple(int(size) for size in entry["shape"])
    return StoredTensor(file, str(entry["dtype"]), shape, int(end) - int(start))


def _last(entries: dict[str, Any]) -> str:
    return max(entries, key=lambda name: entries[name]["data_offsets"][1])


def _damaged(file: Path) -> CheckpointError:
    return CheckpointError(f"{file} has a header that cannot be read; fetch it again.")
