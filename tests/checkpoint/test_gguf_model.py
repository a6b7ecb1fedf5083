"""A GGUF file that is named as a model, by itself or by its folder."""

import os
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api.errors import CheckpointError, ModelNotFound
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.resolve import locate_model, resolve_model
from jackfield.core.doctor.examine import examine
from jackfield.core.host.sources import load_config
from jackfield.core.testing.tiny_llm import tiny_llm


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JACKFIELD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def file(tiny_llama: Any, tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    path: Path = tiny_llama.write(tmp_path / "given" / "tiny.gguf")
    return path


def test_file_and_folder_are_one_conversion(file: Path, cache: Path, progress: Any) -> None:
    folder = resolve_model(str(file), progress=progress)
    assert folder.parent == cache and folder.name.startswith("tiny-")
    assert (folder / "config.json").is_file() and folder.stat().st_mode & 0o077
    assert resolve_model(str(file.parent), progress=progress) == folder
    assert progress.labels == ["Converting tiny.gguf"]
    assert {path.name for path in cache.iterdir()} == {folder.name, f".{folder.name}.lock"}
    assert locate_model(str(file.parent), progress=progress) == file


def test_a_changed_file_is_converted_anew(file: Path, progress: Any) -> None:
    first = resolve_model(str(file), progress=progress)
    os.utime(file, ns=(1, 1))
    assert resolve_model(str(file), progress=progress) != first
    assert len(progress.labels) == 2


def test_it_answers(file: Path) -> None:
    with tiny_llm(file, **{"kernel.stack": ["torch"]}) as llm:  # others compile into the cache
        assert llm.generate([[3, 4, 5]], use_tqdm=False)[0].outputs[0].token_ids


def test_several_files_are_named(file: Path, progress: Any) -> None:
    (file.parent / "other.gguf").write_bytes(b"")
    with pytest.raises(ModelNotFound, match=r"2 GGUF files: other\.gguf, tiny\.gguf; name one"):
        resolve_model(str(file.parent), progress=progress)
    assert resolve_model(str(file), progress=progress).is_dir()


def test_a_config_goes_before_a_file(file: Path, progress: Any) -> None:
    (file.parent / "config.json").write_text("{}")
    assert resolve_model(str(file.parent), progress=progress) == file.parent


def test_what_cannot_be_converted_leaves_nothing(
    tiny_llama: Any, file: Path, cache: Path, progress: Any
) -> None:
    tiny_llama.architecture = "falcon"
    tiny_llama.write(file)
    with pytest.raises(CheckpointError, match="architecture 'falcon'"):
        resolve_model(str(file), progress=progress)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []
    cache.parent.rename(cache.parent.with_name("gone"))
    cache.parent.write_text("")
    with pytest.raises(ModelNotFound, match=r"Cannot keep what .*JACKFIELD_CACHE"):
        resolve_model(str(file), progress=progress)


def test_it_is_looked_at_without_being_converted(
    tiny_llama: Any, file: Path, cache: Path
) -> None:
    def texts() -> str:
        flags = {"model.name": str(file.parent), "kernel.stack": ["torch"], "engine.device": "cpu"}
        report = examine(load_config(flags=flags), 2**30, SilentProgress())
        return " / ".join(f"{one.severity.value}: {one.text}" for one in report.findings)

    well = texts()
    assert "problem" not in well and not cache.exists()
    for words in ("is a GGUF file, which is converted", "128 positions", "All 20 in 1 files",
                  "token ids 2.", "A plain chat renders"):  # fmt: skip
        assert words in well, well
    tiny_llama.changed = {"llama.block_count": 1, "tokenizer.ggml.pre": "qwen2"}
    tiny_llama.write(file)
    broken = texts()
    assert "problem: " in broken and "'blk.1.attn_k.weight' has no place" in broken
    assert "unknown pre-tokenizer 'qwen2'" in broken
