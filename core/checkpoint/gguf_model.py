"""A GGUF file that users name becomes a model folder in the cache, once."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

from jackfield.core.api.errors import ModelNotFound
from jackfield.core.checkpoint.cache_folder import CACHE_VARIABLE, exclusive, models_folder
from jackfield.core.checkpoint.progress import Progress

SUFFIX = ".gguf"


def gguf_in(folder: Path) -> Path | None:
    """The GGUF file of a folder that has no config.json. Raises ModelNotFound if there are
    several."""
    files = sorted(file for file in folder.glob(f"*{SUFFIX}") if file.is_file())
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ModelNotFound(
            f"Model folder {folder} holds {len(files)} GGUF files: {names}; name one of them, "
            f"such as {files[0]}."
        )
    return files[0] if files else None


def gguf_folder(
    file: Path, progress: Progress, *, environ: Mapping[str, str] = os.environ
) -> Path:
    """The model folder made of the file, in bfloat16; made anew when the file has changed.

    Raises CheckpointError for what cannot be converted, ModelNotFound if it cannot be kept.
    """
    models = models_folder(environ)
    folder = models / f"{file.stem}-{_identity(file)}"
    if (folder / "config.json").is_file():
        return folder
    try:
        models.mkdir(parents=True, exist_ok=True)
        with exclusive(models / f".{folder.name}.lock", progress):
            if not folder.exists():
                _make(file, folder, progress)
    except OSError as error:
        raise ModelNotFound(
            f"Cannot keep what {file} is converted to in {models} ({error}); set {CACHE_VARIABLE} "
            f"to a folder that can be written and has two bytes free for each parameter."
        ) from error
    return folder


def _identity(file: Path) -> str:
    facts = file.stat()
    text = f"{file.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _make(file: Path, folder: Path, progress: Progress) -> None:
    # Imported late: whoever has a folder need not pay for it.
    from jackfield.core.checkpoint.gguf_convert import convert_gguf

    prefix = f".{folder.name}.partial-"
    for stale in folder.parent.glob(f"{prefix}*"):  # under the lock, so nobody works in it
        shutil.rmtree(stale, ignore_errors=True)
    work = Path(mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        result = work / "folder"
        result.mkdir()
        convert_gguf(file, result, progress)
        result.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
