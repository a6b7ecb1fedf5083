"""Blocks on a disk: never wrong bytes, never somebody else's folder, nothing left behind."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from jackfield.core.api import CapacityError, ConfigError, TierSpace
from jackfield.core.testing.tier_laws import block, check_store, read
from jackfield.plugins.cache.swap import Swap, SwapConfig, disk_store, folder
from jackfield.plugins.cache.swap.disk_store import DiskStore
from jackfield.plugins.cache.swap.folder import open_folder
from jackfield.plugins.cache.swap.record import HEADER_BYTES, Unsound

SPACE = TierSpace(0, 5000, 4)


def opened(path: Path, space: TierSpace = SPACE) -> DiskStore:
    store = Swap(SwapConfig(folder=str(path), disk=10**6)).store("disk", space)
    assert isinstance(store, DiskStore)
    return store


def slot_file(path: Path, slot: int = 0) -> Path:
    return path / f"jackfield-0-{slot}.block"


def test_a_disk_keeps_the_laws_of_a_store(tmp_path: Path) -> None:
    check_store(lambda space: opened(tmp_path / "swap", space))
    assert list(tmp_path.iterdir()) == []


def truncate(file: Path, size: int) -> None:
    os.truncate(file, size)


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda file: truncate(file, 0), "cut short: 0 of 5,044 bytes"),
        (lambda file: truncate(file, HEADER_BYTES - 1), "cut short"),
        (lambda file: truncate(file, HEADER_BYTES), "cut short"),
        (lambda file: truncate(file, HEADER_BYTES + 4999), "cut short: 5,043 of 5,044 bytes"),
        (lambda file: flip(file, HEADER_BYTES), "was changed"),
        (lambda file: flip(file, HEADER_BYTES + 4999), "was changed"),
        (lambda file: flip(file, HEADER_BYTES - 1), "was changed"),
        (lambda file: flip(file, 0), "is no block of a cache"),
        (lambda file: flip(file, 8), "version 0 of the format, not in 1"),
        (lambda file: flip(file, 12), "holds slot 1, not 0"),
        (lambda file: flip(file, 16), "holds 5,001 bytes, not 5,000"),
        (lambda file: file.write_bytes(bytes(9000)), "is no block of a cache"),
        (lambda file: shutil.copy(slot_file(file.parent, 1), file), "holds slot 1, not 0"),
    ],
)
def test_a_spoiled_file_is_noticed(
    tmp_path: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    store = opened(tmp_path)
    store.put(0, block(SPACE, 0))
    store.put(1, block(SPACE, 1))
    spoil(slot_file(tmp_path))
    with pytest.raises(Unsound, match=message) as caught:
        read(store, SPACE, 0)
    assert str(slot_file(tmp_path)) in str(caught.value)
    assert torch.equal(read(store, SPACE, 1), block(SPACE, 1))
    store.put(0, block(SPACE, 2))
    assert torch.equal(read(store, SPACE, 0), block(SPACE, 2))
    store.close()


def test_the_file_of_another_run_is_noticed(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "a"), opened(tmp_path / "b")
    first.put(0, block(SPACE, 0))
    shutil.copy(slot_file(tmp_path / "a"), slot_file(tmp_path / "b"))
    with pytest.raises(Unsound, match="written by another engine"):
        read(second, SPACE, 0)
    first.close()
    second.close()


def test_an_empty_slot_is_not_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(0, block(SPACE, 0))
    store.drop(0)
    with pytest.raises(FileNotFoundError):
        read(store, SPACE, 0)
    store.close()


def test_what_is_dropped_takes_no_room(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(0, block(SPACE, 0))
    assert slot_file(tmp_path).stat().st_size == 5000 + HEADER_BYTES
    assert slot_file(tmp_path).stat().st_mode & 0o777 == 0o600
    store.drop(0)
    assert not slot_file(tmp_path).exists()
    store.close()


class FullFile:
    """A file on a disk that has room for a header only."""

    def __init__(self, path: Path, mode: str, **_: Any) -> None:
        self._file, self._writes = path.open(mode), 0

    def __enter__(self) -> "FullFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        self._writes += 1
        if self._writes > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written: int = self._file.write(data)
        return written


def test_a_full_disk_fails_one_put_and_keeps_no_half_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    store.put(0, block(SPACE, 0))
    with monkeypatch.context() as patch:
        patch.setattr(disk_store, "open", FullFile, raising=False)
        with pytest.raises(OSError, match="No space left on device") as caught:
            store.put(1, block(SPACE, 1))
    assert caught.value.errno == errno.ENOSPC
    assert str(tmp_path) in str(caught.value) and "cache.swap.disk" in str(caught.value)
    assert not slot_file(tmp_path, 1).exists()
    assert torch.equal(read(store, SPACE, 0), block(SPACE, 0))
    store.put(1, block(SPACE, 1))
    assert torch.equal(read(store, SPACE, 1), block(SPACE, 1))
    store.close()


def test_only_own_files_are_deleted(tmp_path: Path) -> None:
    strange = ["notes.txt", "jackfield-0-1.block.bak", "jackfield-0-x.block", "jackfield-1-0.block"]
    for name in [*strange, "jackfield-0-0.block", "jackfield-0-77.block"]:
        (tmp_path / name).write_text("old")
    (tmp_path / "jackfield-0-5.block").mkdir()
    store = opened(tmp_path)
    kept = {*strange, "jackfield-0-5.block"}
    assert {path.name for path in tmp_path.iterdir()} == kept | {"jackfield-0.lock"}
    store.put(0, block(SPACE, 0))
    store.close()
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    store, elsewhere = opened(tmp_path / "swap"), tmp_path / "precious"
    elsewhere.write_text("precious")
    slot_file(tmp_path / "swap").symlink_to(elsewhere)
    with pytest.raises(OSError):
        store.put(0, block(SPACE, 0))
    assert elsewhere.read_text() == "precious"
    store.close()


def test_two_engines_never_share_a_folder(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(0, block(SPACE, 0))
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path)
    assert f"{tmp_path} is in use by another engine, in process {os.getpid()}" in str(caught.value)
    assert torch.equal(read(store, SPACE, 0), block(SPACE, 0))
    other_rank = opened(tmp_path, SPACE._replace(rank=1))
    other_rank.close()
    assert torch.equal(read(store, SPACE, 0), block(SPACE, 0))
    store.close()
    opened(tmp_path).close()


def test_the_lock_of_a_dead_process_does_not_count(tmp_path: Path) -> None:
    script = f"""
import os, torch
from jackfield.core.api import TierSpace
from jackfield.plugins.cache.swap import Swap, SwapConfig
store = Swap(SwapConfig(folder={str(tmp_path)!r})).store("disk", TierSpace(0, 8, 2))
store.put(1, torch.zeros(8, dtype=torch.uint8))
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    assert (tmp_path / "jackfield-0.lock").exists() and slot_file(tmp_path, 1).exists()
    store = opened(tmp_path)
    assert not slot_file(tmp_path, 1).exists()
    store.close()


@pytest.mark.parametrize(
    ("path", "reason"),
    [("missing/swap", "No such file or directory"), ("file", "File exists"),
     ("file/swap", "Not a directory")],
)  # fmt: skip
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path / path)
    assert f"cache.swap.folder {tmp_path / path} cannot be used: {reason}" in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "touch", refused)
    with pytest.raises(ConfigError, match="cannot be used: Read-only file system"):
        opened(tmp_path / "swap")
    assert list(tmp_path.iterdir()) == []


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_more_than_is_free_on_the_disk_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder.shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 20_000))
    opened(tmp_path / "swap", TierSpace(0, 5000, 4)).close()
    with pytest.raises(CapacityError) as caught:
        opened(tmp_path / "swap", TierSpace(0, 5000, 5))
    assert "cache.swap.disk takes 24.41 KiB, but only 19.53 KiB are free" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_each_engine_has_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKFIELD_CACHE", str(tmp_path))
    first, second = (DiskStore(open_folder(None, SPACE), SPACE) for _ in range(2))
    first.put(0, block(SPACE, 0))
    second.put(0, block(SPACE, 1))
    assert torch.equal(read(first, SPACE, 0), block(SPACE, 0))
    folders = list((tmp_path / "swap").glob("engine-*"))
    assert [path.stat().st_mode & 0o777 for path in folders] == [0o700, 0o700]
    first.close()
    second.close()
    assert list((tmp_path / "swap").glob("engine-*")) == []


def test_private_folders_of_dead_engines_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKFIELD_CACHE", str(tmp_path))
    alive = DiskStore(open_folder(None, SPACE), SPACE)
    alive.put(2, block(SPACE, 2))
    dead, other = tmp_path / "swap" / "engine-dead", tmp_path / "swap" / "engine-other"
    for path in (dead, other, tmp_path / "swap" / "engine-bare"):
        path.mkdir()
    for path in (dead, other):
        (path / "jackfield-0.lock").write_text("1")
        slot_file(path).write_text("old")
    (other / "notes.txt").write_text("not ours")
    new = DiskStore(open_folder(None, SPACE), SPACE)
    assert not dead.exists() and not (tmp_path / "swap" / "engine-bare").exists()
    assert [path.name for path in other.iterdir()] == ["notes.txt"]
    assert torch.equal(read(alive, SPACE, 2), block(SPACE, 2))
    alive.close()
    new.close()
