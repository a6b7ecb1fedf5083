"""Where Jackfield keeps models that it has fetched and converted."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from jackfield.core.checkpoint.progress import Progress

CACHE_VARIABLE = "JACKFIELD_CACHE"


def models_folder(environ: Mapping[str, str]) -> Path:
    """`models` in $JACKFIELD_CACHE, else in `jackfield` of the user's cache folder."""
    chosen = environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser() / "models"
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "jackfield" / "models"


@contextmanager
def exclusive(lock_file: Path, progress: Progress) -> Iterator[None]:
    """Hold `lock_file` against every other process and thread; waits, and says so, if it is held.

    The system releases the lock of a process that dies.
    """
    with lock_file.open("w") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            progress.start("Waiting for another process to prepare the model", None)
            try:
                flock(file, LOCK_EX)
            finally:
                progress.finish()
        yield
