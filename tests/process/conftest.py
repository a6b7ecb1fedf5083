"""The tiny model, and engines on it in processes of their own."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.testing.tiny_model import write_tiny_model

SMALL: dict[str, Any] = {
    "block_size": 16,
    "num_gpu_blocks_override": 64,
    "max_num_seqs": 4,
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


class Processes:
    """Looks at other processes of this machine."""

    @staticmethod
    def engines_of(parent: int) -> list[int]:
        """Engine processes that a process started and that run."""
        children = psutil.Process(parent).children(recursive=True)
        return [child.pid for child in children if _is_engine(child)]

    @staticmethod
    def runs(process: int) -> bool:
        """Whether the process lives; one that waits to be reaped does not."""
        try:
            return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    @staticmethod
    async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait for something that happens in another process."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.02)


def _is_engine(process: psutil.Process) -> bool:
    try:
        return any("engine_process" in word for word in process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


@pytest.fixture(scope="session")
def processes() -> Processes:
    return Processes()
