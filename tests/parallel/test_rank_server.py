"""`jackfield serve` over two ranks when one of them is killed under load."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from jackfield.core.testing.ranks import rank_processes


@pytest.fixture(scope="module")
def death(load_module: Callable[[Path], ModuleType]) -> ModuleType:
    """What watches servers of one rank die."""
    module = load_module(Path(__file__).parents[1] / "http" / "test_death.py")
    module.ENGINE = (*module.ENGINE, "--tensor-parallel-size=2")  # type: ignore[attr-defined]
    return module


async def rank_dies(death: ModuleType, server: Any) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        crowd = death.Crowd(server, client)
        await crowd.answered()
        (rank,) = rank_processes(server.process.pid)
        rank.kill()
        found = await crowd.ends()
        death.check_ends(found)
        assert "rank 1" in found[-1].json()["error"]["message"]
        await death.refused(server)
    assert await asyncio.to_thread(server.process.wait, death.SOON) == death.STOPPED
    server.childless(1.0)


def test_a_killed_rank_is_told_to_every_client(death: ModuleType, tmp_path: Path) -> None:
    """Open answers end with an error, new requests are refused, and the server ends with a code."""
    folder = death.long_model(tmp_path / "model")
    with death.serving(folder, tmp_path / "log", 0) as server:
        asyncio.run(rank_dies(death, server))
