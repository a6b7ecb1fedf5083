"""Scripted models as an installed plugin, and engines on them."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.testing.scripted_folder import write_scripted_model
from jackfield.core.testing.tiny_model import write_tiny_model

METADATA = "Metadata-Version: 2.1\nName: scripted\nVersion: 1.0\n"
ENTRY_POINTS = (
    "[jackfield.v1.models]\nScripted = jackfield.core.testing.scripted_model:ScriptedModel\n"
)
SMALL: dict[str, Any] = {
    "block_size": 8,
    "num_gpu_blocks_override": 128,
    "max_num_seqs": 8,
    "kernel.stack": ["torch"],
    "engine.threads": 1,
    "progress": SilentProgress(),
}


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    return SMALL


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Takes what `write_scripted_model` takes after the folder, and gives the folder."""
    site = tmp_path_factory.mktemp("site")
    info = site / "scripted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        importlib.invalidate_caches()
        yield lambda *arguments, **options: write_scripted_model(
            tmp_path_factory.mktemp("scripted"), *arguments, **options
        )


@pytest.fixture
def load(small: dict[str, Any]) -> Iterator[Callable[..., LLM]]:
    """`LLM` with small sizes; closed after the test."""
    made: list[LLM] = []

    def make(folder: Path, **settings: Any) -> LLM:
        made.append(LLM(folder, **{**small, **settings}))
        return made[-1]

    yield make
    for llm in made:
        llm.close()
