"""Parts of quantized weights, from folders of every format."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from jackfield.core.api import Ranks, Shard
from jackfield.core.testing.thread_ranks import joined, on_threads

RECIPES = (
    "awq 32", "awq 64", "awq -1", "gptq 64", "gptq asym", "gptq order", "gptq eight", "fp8 tensor",
    "fp8 channel", "fp8 block", "packed", "packed asym order", "int8", "int8 asym", "float block",
)  # fmt: skip
SORTED = ("gptq order", "gptq eight", "packed asym order")


@pytest.fixture(scope="module")
def recipes(load_module: Callable[[Path], ModuleType]) -> ModuleType:
    return load_module(Path(__file__).parents[1] / "quant" / "conftest.py")


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", RECIPES)
def test_logits_equal(
    divided: ModuleType, recipes: ModuleType, tmp_path: Path, name: str, size: int,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Columns that are not in order are dequantized, and a warning tells it; all others stay."""
    folder = recipes.Checkpoint(recipes.RECIPES[name]).write(tmp_path / "model")
    whole = divided.run(folder, divided.operations(), Shard())
    assert not caplog.records

    def work(ranks: Ranks) -> Any:
        return divided.run(folder, joined(divided.operations(), ranks), Shard(ranks.rank, size))

    for found in on_threads(size, work):
        torch.testing.assert_close(found.logits_TV, whole.logits_TV, atol=1e-4, rtol=1e-4)
    told = [record.message for record in caplog.records]
    assert len(told) == (size if name in SORTED else 0)
    assert all(text.startswith("4 quantized weights of 14 were dequantized") for text in told)
