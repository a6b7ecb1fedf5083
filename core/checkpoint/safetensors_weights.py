"""The weights of a checkpoint, taken one by one from its safetensors files."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from jackfield.core.api.errors import CheckpointError
from jackfield.core.api.model import Shard, Split
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.checkpoint.safetensors_header import StoredTensor, read_header
from jackfield.core.checkpoint.safetensors_reader import SafetensorsReader
from jackfield.core.checkpoint.shard_slice import shard_slice
from jackfield.core.checkpoint.tensor_files import TensorFiles

FLOATS = ("F64", "F32", "F16", "BF16")
LISTED = 5


class SafetensorsWeights:
    """Implements `Weights`; a context manager, which ends its progress and closes the files.

    Memory beside what `take` returned: one tensor, and a bounded part of one file.
    bytes_taken: of all that `take` returned. Call `finish` when the model is built.
    """

    def __init__(
        self,
        files: TensorFiles,
        dtype: torch.dtype,
        device: torch.device,
        shard: Shard,
        progress: Progress,
    ) -> None:
        """Reads the headers only. Raises CheckpointError for damaged or contradicting files."""
        self._files, self._progress = files, progress
        self.dtype, self.shard = dtype, shard
        self._stored = locate(files)
        self._reader = SafetensorsReader(dtype, device)
        self._as_stored = SafetensorsReader(None, device)
        self._taken: set[str] = set()
        self._ignored: list[re.Pattern[str]] = []
        self.bytes_taken = 0

    def __enter__(self) -> Self:
        total = sum(stored.bytes for stored in self._stored.values())
        self._progress.start("Loading weights", total)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader.close()
        self._as_stored.close()
        self._progress.finish()

    def has(self, name: str) -> bool:
        """Whether a file holds the tensor."""
        return name in self._stored

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        """As `Weights.take`; what it returns is the caller's alone."""
        stored = self._find(name, shape)
        slices = shard_slice(name, shape, split, self.shard, part)
        tensor = self._reader.read(name, stored, slices)
        return self._count(name, tensor)

    def take_exact(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """As `Weights.take_exact`."""
        self._find(name, shape)
        return self.take_as_stored(name).float()

    def _find(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        stored = self._stored.get(name)
        if stored is None:
            raise CheckpointError(self._missing(name))
        _check(name, stored, shape)
        return stored

    @property
    def stored(self) -> Mapping[str, StoredTensor]:
        """Every tensor of the files, by name."""
        return self._stored

    def take_as_stored(self, name: str) -> Tensor:
        """The whole tensor on the device, in the element type of the file, which has it."""
        return self._count(name, self.look_at(name))

    def look_at(self, name: str) -> Tensor:
        """The same without taking it, so that somebody still has to."""
        stored = self._stored[name]
        whole = tuple(slice(0, size) for size in stored.shape)
        return self._as_stored.read(name, stored, whole)

    def _count(self, name: str, tensor: Tensor) -> Tensor:
        self._taken.add(name)
        self.bytes_taken += tensor.nbytes
        self._progress.advance(self._stored[name].bytes)
        return tensor

    def ignore(self, pattern: str) -> None:
        """The pattern has to match a name as a whole."""
        self._ignored.append(re.compile(pattern))

    def finish(self) -> None:
        """Raise CheckpointError for tensors that were neither taken nor ignored."""
        surplus = self.surplus()
        if not surplus:
            return
        shown = ", ".join(f"{name} in {self._stored[name].file}" for name in surplus[:LISTED])
        more = f" and {len(surplus) - LISTED} more" if len(surplus) > LISTED else ""
        raise CheckpointError(
            f"{len(surplus)} tensors of the checkpoint have no place in the model: {shown}{more}; "
            f"config.json does not fit these weights."
        )

    def surplus(self) -> list[str]:
        """Names of tensors that were neither taken nor ignored."""
        return [name for name in sorted(self._stored) if not self._is_known(name)]

    def _is_known(self, name: str) -> bool:
        return name in self._taken or any(known.fullmatch(name) for known in self._ignored)

    def _missing(self, name: str) -> str:
        first, *others = self._files.files
        several = f"None of the {len(others) + 1} files in {first.parent} has"
        where = several if others else f"{first} lacks"
        close = get_close_matches(name, self._stored, n=1)
        hint = f"; the nearest name is {close[0]!r}" if close else ""
        return f"{where} the tensor {name!r}, which config.json asks for{hint}."


def locate(files: TensorFiles) -> Mapping[str, StoredTensor]:
    """Every tensor of the files by name. Raises CheckpointError for files that contradict."""
    found: dict[str, StoredTensor] = {}
    for file in files.files:
        for name, stored in read_header(file).items():
            if files.places.get(name, file) != file:
                continue
            if name in found:
                raise CheckpointError(
                    f"Tensor {name!r} is both in {found[name].file} and in {file}; remove the file "
                    f"that does not belong to the model."
                )
            found[name] = stored
    for name, file in files.places.items():
        if name not in found:
            raise CheckpointError(
                f"{file} lacks the tensor {name!r}, which the index places there."
            )
    return found


def _check(name: str, stored: StoredTensor, shape: tuple[int, ...]) -> None:
    if stored.shape != shape:
        raise CheckpointError(
            f"{stored.file}, tensor {name!r}: shape is {list(stored.shape)}, but config.json "
            f"makes it {list(shape)}."
        )
    if stored.dtype not in FLOATS:
        raise CheckpointError(
            f"{stored.file}, tensor {name!r}: element type is {stored.dtype}, expected one of "
            f"{', '.join(FLOATS)}; quantized weights are not served "
            f"unless config.json has the quantization_config that belongs to them."
        )
