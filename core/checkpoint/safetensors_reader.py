"""Reads tensors of safetensors files without keeping the files in memory."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from jackfield.core.api.errors import CheckpointError
from jackfield.core.checkpoint.safetensors_header import StoredTensor

MAPPED_BYTES = 32 * 2**20


class SafetensorsReader:
    """Keeps the file that was read last open.

    Pages of an open file that have been read count as the process's memory until it is closed, so
    a file is opened anew after each MAPPED_BYTES.
    """

    def __init__(self, dtype: torch.dtype | None, device: torch.device) -> None:
        """dtype: what tensors are cast to; None = they stay as they are stored."""
        self._dtype, self._device = dtype, device
        self._file: Path | None = None
        self._open: Any = None
        self._mapped = 0

    def read(self, name: str, stored: StoredTensor, slices: tuple[slice, ...]) -> Tensor:
        """The part of a tensor, cast and copied to the device. Raises CheckpointError."""
        try:
            result = self._copy(name, stored, slices)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{stored.file}, tensor {name!r}: {error}.") from error
        self._mapped += stored.bytes
        if self._mapped > MAPPED_BYTES:
            self.close()
        return result

    def close(self) -> None:
        """Let go of the open file; a later read opens it again."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._file = self._open = None
        self._mapped = 0

    def _copy(self, name: str, stored: StoredTensor, slices: tuple[slice, ...]) -> Tensor:
        if stored.file != self._file:
            self.close()
            self._open, self._file = safe_open(stored.file, framework="pt"), stored.file
        part = self._open.get_slice(name)[slices]
        dtype = part.dtype if self._dtype is None else self._dtype
        return torch.empty(part.shape, dtype=dtype, device=self._device).copy_(part)
