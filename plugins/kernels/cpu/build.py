"""Compiles the kernels once per machine and source, into the user's cache folder."""

import ctypes
import hashlib
import os
import platform
import tempfile
from collections.abc import Iterable
from pathlib import Path

from jackfield.plugins.kernels.cpu.compiler import CompileError, Compiler

# torch has an OpenMP runtime in the process already. A library that is linked without one uses
# that; two runtimes would keep two pools of threads that wait for work on the same cores.
LINKS: tuple[tuple[str, ...], ...] = ((), ("-fopenmp",))


def cache_folder() -> Path:
    """`kernels` in `$JACKFIELD_CACHE`, else in `jackfield` in the user's cache folder."""
    chosen = os.environ.get("JACKFIELD_CACHE")
    if chosen:
        return Path(chosen).expanduser() / "kernels"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "jackfield" / "kernels"


def load() -> ctypes.CDLL:
    """The compiled kernels. Raises `CompileError` with the reason if there is no way."""
    compiler = Compiler()
    reasons = []
    for link in LINKS:
        path = cache_folder() / f"{_key(compiler, link)}.so"
        try:
            if not path.exists():
                _build(compiler, link, path)
            return ctypes.CDLL(str(path))
        except OSError as error:
            reasons.append(str(error))
    raise CompileError(f"the compiled kernels cannot be stored or loaded: {reasons[-1]}")


def _build(compiler: Compiler, link: tuple[str, ...], path: Path) -> None:
    """Whole or not at all: another process may do the same at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        objects = compiler.compile(_files("*.c"), Path(folder))
        target = Path(folder) / path.name
        compiler.link(objects, target, link)
        os.replace(target, path)


def _files(pattern: str) -> list[Path]:
    return sorted(Path(__file__).parent.glob(pattern))


def _key(compiler: Compiler, link: tuple[str, ...]) -> str:
    """Everything that the machine code depends on."""
    parts: Iterable[str] = (
        compiler.version,
        *compiler.command,
        *compiler.flags,
        *link,
        platform.machine(),
        _processor_features(),
        *(file.name + "\0" + file.read_text() for file in _files("*.[ch]")),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _processor_features() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
