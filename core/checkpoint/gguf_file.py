"""One GGUF file: typed metadata and tensors, with errors that name the file."""

from pathlib import Path
from typing import TypeVar, overload

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor
from gguf.quants import dequantize
from numpy.typing import NDArray

from jackfield.core.api.errors import CheckpointError

T = TypeVar("T")
D = TypeVar("D")

READABLE = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")


class _Required:
    """The default of a key that must be there."""


REQUIRED = _Required()


class GgufFile:
    """A memory-mapped GGUF file. Raises CheckpointError for whatever is missing or broken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise CheckpointError(
                f"{path} is not a complete GGUF file ({error}); fetch it again."
            ) from error
        self.tensors: dict[str, ReaderTensor] = {t.name: t for t in self._reader.tensors}

    @overload
    def value(self, key: str, kind: type[T]) -> T: ...

    @overload
    def value(self, key: str, kind: type[T], default: D) -> T | D: ...

    def value(self, key: str, kind: type[T], default: object = REQUIRED) -> object:
        """The metadata value of `key`, or `default` when the file does not have it."""
        field = self._reader.fields.get(key)
        if field is None:
            if default is REQUIRED:
                raise CheckpointError(f"{self.path} lacks the metadata key {key!r}.")
            return default
        found = field.contents()
        if not isinstance(found, kind):
            raise CheckpointError(
                f"{self.path}: metadata key {key!r} holds {type(found).__name__}, "
                f"not {kind.__name__}."
            )
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, slowest axis first (GGUF stores it the other way round)."""
        return tuple(int(size) for size in reversed(self.tensors[name].shape))

    def read(self, name: str) -> NDArray[np.float32]:
        """The values of a tensor, computed from its quantised form."""
        tensor, kind = self.tensors[name], self._kind(name)
        values: NDArray[np.float32] = dequantize(tensor.data, kind)
        return np.asarray(values, dtype=np.float32).reshape(self.shape(name))

    def require_readable(self) -> None:
        """Raise CheckpointError that names a tensor of another type than those that are read."""
        for name in self.tensors:
            self._kind(name)

    def _kind(self, name: str) -> GGMLQuantizationType:
        kind = GGMLQuantizationType(self.tensors[name].tensor_type)
        if kind.name not in READABLE:
            raise CheckpointError(
                f"{self.path}: tensor {name!r} has type {kind.name}; "
                f"readable types are {', '.join(READABLE)}."
            )
        return kind
