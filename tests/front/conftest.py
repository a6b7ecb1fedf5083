"""The tiny model, and how engines on it are made."""

from pathlib import Path
from typing import Any

import pytest

from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.testing.tiny_model import write_tiny_model

SMALL: dict[str, Any] = {
    "block_size": 16,
    "num_gpu_blocks_override": 64,
    "max_num_seqs": 8,
    "kernel.stack": ["torch"],
    "engine.threads": 1,
    "progress": SilentProgress(),
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"), temperature=0.5, top_k=7)


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    return SMALL
