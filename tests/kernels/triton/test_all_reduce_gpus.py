"""Sums over ranks with a GPU each, eager and in CUDA graphs, beside NCCL."""

from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield.core.testing.process_ranks import on_processes

pytestmark = pytest.mark.gpu
SCRIPT = Path(__file__).with_name("all_reduce_gpus.py")
GPUS = torch.cuda.device_count()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(size, marks=pytest.mark.skipif(size > GPUS, reason=f"needs {size} GPUs"))
        for size in (2, 4, 8)
    ],
)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("ranks")
    return on_processes(request.param, SCRIPT, folder, folder)


def test_memory_is_shared(ranks: list[Any]) -> None:
    assert [rank["reasons"] for rank in ranks] == [[]] * len(ranks)
    assert all(rank["opened"] and rank["again"] for rank in ranks)


def test_sums_and_norms(ranks: list[Any]) -> None:
    for rank in ranks:
        assert [found for found in rank["eager"] if not all(found.values())] == []


@pytest.mark.parametrize("copied", ["by a kernel", "as memory"])
def test_graphs_in_any_order(ranks: list[Any], copied: str) -> None:
    assert [rank[copied] for rank in ranks] == [{}] * len(ranks)


def test_nobody_waits_for_ranks_that_have_gone(ranks: list[Any]) -> None:
    assert [rank["left"] for rank in ranks] == [[True, True]] * len(ranks)
