"""The folder of a disk tier: made, held against other engines, cleaned, removed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from re import compile as pattern
from tempfile import mkdtemp

from jackfield.core.api import CapacityError, ConfigError, TierSpace, format_bytes

PRIVATE = "engine-"
BLOCK_FILE = pattern(r"jackfield-\d+-\d+\.block")
LOCK = "jackfield-{rank}.lock"
WAY_OUT = "set cache.swap.folder to a folder that this user may write to"


class Folder:
    """A folder that this engine alone uses, as long as the process lives or until `remove`.

    Only files with names of this kind are ever deleted in it.
    """

    def __init__(self, path: Path, rank: int, lock: int, made: bool) -> None:
        self.path = path
        self._rank = rank
        self._lock = lock
        self._made = made

    def file(self, slot: int) -> Path:
        """Where the block of a slot is kept."""
        return self.path / f"jackfield-{self._rank}-{slot}.block"

    def clean(self) -> None:
        """Delete the blocks of this rank, those of an engine that died included."""
        for path in self.path.glob(f"jackfield-{self._rank}-*"):
            if BLOCK_FILE.fullmatch(path.name) and not path.is_dir():
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the blocks and the lock, and the folder itself if it was made for them."""
        self.clean()
        (self.path / LOCK.format(rank=self._rank)).unlink(missing_ok=True)
        os.close(self._lock)
        if self._made:
            with suppress(OSError):  # somebody has put something else there
                self.path.rmdir()


def open_folder(chosen: str | None, space: TierSpace) -> Folder:
    """The folder of one rank's blocks, empty of them, with room for all.

    Raises `ConfigError` if it cannot be used, `CapacityError` if the disk is too full.
    """
    folder = _chosen(Path(chosen).expanduser(), space.rank) if chosen else _private(space.rank)
    try:
        _prepare(folder, space)
    except BaseException:
        folder.remove()
        raise
    return folder


def _prepare(folder: Folder, space: TierSpace) -> None:
    try:
        folder.clean()
        folder.file(0).touch(mode=0o600)
        folder.clean()
        free = shutil.disk_usage(folder.path).free
    except OSError as error:
        raise _unusable(folder.path, error) from error
    needed = space.num_slots * space.block_bytes
    if needed > free:
        raise CapacityError(
            f"cache.swap.disk takes {format_bytes(needed)}, but only {format_bytes(free)} are "
            f"free in {folder.path}; set cache.swap.disk to less, or cache.swap.folder to a "
            f"folder on a larger disk"
        )


def _chosen(path: Path, rank: int) -> Folder:
    made = _make(path)
    try:
        lock = _lock(path / LOCK.format(rank=rank))
    except OSError as error:
        raise _unusable(path, error) from error
    if lock is None:
        holder = (path / LOCK.format(rank=rank)).read_text().strip() or "unknown"
        raise ConfigError(
            f"cache.swap.folder {path} is in use by another engine, in process {holder}; give "
            f"each engine a folder of its own, or leave cache.swap.folder out"
        )
    return Folder(path, rank, lock, made)


def _make(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError as error:
        if not path.is_dir():
            raise _unusable(path, error) from error
        return False
    except OSError as error:
        raise _unusable(path, error) from error
    return True


def _private(rank: int) -> Folder:
    """A new folder beside those of other engines. Those of engines that died are removed first."""
    base = _base()
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _exclusive(base / "lock"):
            for abandoned in base.glob(f"{PRIVATE}*"):
                _remove_if_abandoned(abandoned)
            path = Path(mkdtemp(prefix=PRIVATE, dir=base))
            lock = _lock(path / LOCK.format(rank=rank))
    except OSError as error:
        raise _unusable(base, error) from error
    assert lock is not None, "a new folder is in use"
    return Folder(path, rank, lock, made=True)


def _base() -> Path:
    """Not the folder for temporary files, which may be in memory."""
    own = os.environ.get("JACKFIELD_CACHE")
    if own:
        return Path(own).expanduser() / "swap"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "jackfield" / "swap"


def _remove_if_abandoned(path: Path) -> None:
    for lock_file in path.glob(LOCK.format(rank="*")):
        rank = lock_file.stem.removeprefix("jackfield-")
        lock = _lock(lock_file) if rank.isdecimal() else None
        if lock is not None:
            Folder(path, int(rank), lock, made=True).remove()
    with suppress(OSError):  # not empty: it is in use, or holds what is not ours
        path.rmdir()


@contextmanager
def _exclusive(lock_file: Path) -> Iterator[None]:
    """Engines that start at the same time take turns."""
    with lock_file.open("w") as file:
        flock(file, LOCK_EX)
        yield


def _lock(path: Path) -> int | None:
    """An open file with our process's number, locked until it is closed; None = it is taken."""
    while True:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            flock(opened, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            os.close(opened)
            return None
        if _is_still(path, opened):
            os.ftruncate(opened, 0)
            os.write(opened, str(os.getpid()).encode())
            return opened
        os.close(opened)  # its holder removed it meanwhile


def _is_still(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False


def _unusable(path: Path, error: OSError) -> ConfigError:
    reason = error.strerror or str(error)
    return ConfigError(f"cache.swap.folder {path} cannot be used: {reason}; {WAY_OUT}")
