"""From a model's name to its folder."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from jackfield.core.api.errors import ModelNotFound
from jackfield.core.checkpoint import resolve
from jackfield.core.checkpoint.resolve import resolve_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


class FakeHub:
    """Stands for snapshot_download."""

    def __init__(self, folder: Path, error: Exception | None = None) -> None:
        self.folder, self.error = folder, error
        self.calls: list[tuple[str, str | None, list[str]]] = []

    def __call__(self, name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        self.calls.append((name, revision, allow_patterns))
        if self.error is not None:
            raise self.error
        return str(self.folder)


@pytest.mark.parametrize("name", [None, ""])
def test_no_name_is_the_default_model(
    name: str | None, progress: Any, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(resolve, "default_model", lambda told: folder if told is progress else None)
    assert resolve_model(name, progress=progress) == folder


def test_local_folder_is_itself(
    folder: Path, progress: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_model(str(folder), progress=progress) == folder
    monkeypatch.setenv("HOME", str(folder.parent))
    assert resolve_model("~/model", progress=progress) == folder
    monkeypatch.chdir(folder.parent)
    assert resolve_model("model", progress=progress) == Path("model")
    assert progress.labels == []


def test_folder_without_config_says_what_it_needs(folder: Path, progress: Any) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"model lacks config\.json.*safetensors"):
        resolve_model(str(folder), progress=progress)


def test_file_is_no_folder(folder: Path, progress: Any) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json is a file"):
        resolve_model(str(folder / "config.json"), progress=progress)


@pytest.mark.parametrize("name", ["./x", "../x/y", "/no/such", "~/no-such", "a/b/c", "."])
def test_path_that_does_not_exist_never_asks_the_hub(
    name: str, progress: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub = FakeHub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    words = r"lacks config\.json" if name == "." else f"Model folder {name} does not exist"
    with pytest.raises(ModelNotFound, match=words):
        resolve_model(name, progress=progress)
    assert hub.calls == []


@pytest.mark.parametrize("name", ["qwen", "a b/c", "org/", "http:x/y"])
def test_unknown_word_gets_a_hint(name: str, progress: Any) -> None:
    with pytest.raises(ModelNotFound, match="neither a folder nor a hub id; give a path such as"):
        resolve_model(name, progress=progress)


def test_hub_id_fetches_only_safe_files(
    folder: Path, progress: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = FakeHub(folder)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    assert resolve_model("org/name", revision="v1", progress=progress) == folder
    name, revision, patterns = hub.calls[0]
    assert (name, revision) == ("org/name", "v1")
    assert {"*.safetensors", "*.json", "*.txt", "*.jinja"} <= set(patterns)
    assert not {"*.bin", "*.pt", "*.py", "*"} & set(patterns)
    assert (progress.labels, progress.open) == (["Fetching org/name from the hub"], 0)


@pytest.mark.parametrize(
    "error",
    [
        LocalEntryNotFoundError("offline, no\nsecond line"),
        OSError("offline, no."),
        RuntimeError("offline, no"),
    ],
)
def test_hub_errors_are_one_sentence(
    error: Exception, folder: Path, progress: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", FakeHub(folder, error))
    with pytest.raises(ModelNotFound) as caught:
        resolve_model("org/name", revision="v1", progress=progress)
    text = str(caught.value)
    assert text.startswith("Cannot fetch model org/name at revision v1 from the hub: offline, no;")
    assert "\n" not in text
    assert progress.open == 0


def test_offline_hub_is_a_model_not_found(
    progress: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelNotFound, match="Cannot fetch model jackfield/no-such-model"):
        resolve_model("jackfield/no-such-model", progress=progress)


def test_the_hub_is_imported_only_for_hub_ids(folder: Path) -> None:
    code = (
        "import sys; from jackfield.core.checkpoint.resolve import resolve_model\n"
        "from jackfield.core.checkpoint.progress import SilentProgress\n"
        f"resolve_model({str(folder)!r}, progress=SilentProgress())\n"
        "print('huggingface_hub' in sys.modules or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
