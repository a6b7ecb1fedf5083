"""Blocks on a disk."""

import os
from contextlib import suppress
from io import FileIO
from typing import TYPE_CHECKING

from jackfield.core.api import TierSpace
from jackfield.plugins.cache.swap.folder import Folder
from jackfield.plugins.cache.swap.record import HEADER_BYTES, Seal, Unsound

if TYPE_CHECKING:
    from torch import Tensor

WAY_OUT = (
    "free some space there, set cache.swap.disk to less, or cache.swap.folder to a folder on a "
    "larger disk"
)


class DiskStore:
    """A file per slot. A block that is read is compared with the checksum in its file.

    Nothing is forced out of the system's memory to the disk: after a crash no block is of use.
    """

    def __init__(self, folder: Folder, space: TierSpace) -> None:
        self._folder = folder
        self._num_slots = space.num_slots
        self._seal = Seal()

    def put(self, slot: int, data_B: "Tensor") -> None:
        assert 0 <= slot < self._num_slots, f"slot {slot} of {self._num_slots}"
        data, path = data_B.numpy().data, self._folder.file(slot)
        try:
            with open(path, "wb", opener=_private) as file:
                file.write(self._seal.header(slot, data))
                file.write(data)
        except OSError as error:
            with suppress(OSError):  # half a block takes room and is of no use
                path.unlink()
            raise OSError(
                error.errno, f"{error.strerror} in {self._folder.path}: {WAY_OUT}"
            ) from error

    def get(self, slot: int, into_B: "Tensor") -> None:
        data, path = into_B.numpy().data, self._folder.file(slot)
        with open(path, "rb", buffering=0, opener=_private) as file:
            header = bytearray(HEADER_BYTES)
            found = _fill(memoryview(header), file) + _fill(data, file)
        if found < HEADER_BYTES + len(data):
            raise Unsound(
                f"{path} is cut short: {found:,} of {HEADER_BYTES + len(data):,} bytes are there"
            )
        try:
            self._seal.check(bytes(header), slot, data)
        except Unsound as error:
            raise Unsound(f"{path} {error}") from error

    def drop(self, slot: int) -> None:
        self._folder.file(slot).unlink(missing_ok=True)

    def close(self) -> None:
        self._folder.remove()


def _private(path: str, flags: int) -> int:
    """Readable for this user only, and never through a link that somebody put there."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _fill(view: memoryview, file: FileIO) -> int:
    """Bytes that were read: as many as there is room for, or up to the end of the file."""
    done = 0
    while done < len(view) and (count := file.readinto(view[done:])):
        done += count
    return done
