"""Quantized experts that ranks share, by parts of each or as whole ones: the logits of one rank."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from jackfield.core.api import Ranks, Shard
from jackfield.core.testing.thread_ranks import joined, on_threads
from jackfield.plugins.kernels.torch_ops.quant_experts import TorchQuantExperts

QUANT = Path(__file__).parents[1] / "quant"
RECIPES = ("awq 32", "gptq asym", "fp8 block", "fp8 channel", "int8", "int8 asym", "packed")
KINDS = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3")
COUNTS = {"mixtral": 4, "qwen2_moe": 5, "qwen3_moe": 5, "deepseek_v2": 8, "deepseek_v3": 8}


@pytest.fixture(scope="module")
def recipes(load_module: Callable[[Path], ModuleType]) -> ModuleType:
    return load_module(QUANT / "conftest.py")


@pytest.fixture(scope="module")
def mixtures(load_module: Callable[[Path], ModuleType]) -> ModuleType:
    return load_module(QUANT / "mixtures.py")


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Experts of each layer of each rank that stay quantized."""
    found: list[int] = []
    plain = TorchQuantExperts.pack

    def pack(self: TorchQuantExperts, experts: Any, count: int) -> Any:
        made = plain(self, experts, count)
        found.append(count)
        return made

    monkeypatch.setattr(TorchQuantExperts, "pack", pack)
    return found


@pytest.mark.parametrize("whole", [False, True], ids=["parts", "whole"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, "awq 32") for kind in KINDS), *(("qwen2_moe", name) for name in RECIPES[1:])],
)
def test_logits_equal(
    divided: ModuleType, recipes: ModuleType, mixtures: ModuleType, tmp_path: Path, kind: str,
    name: str, whole: bool, packs: list[int], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    width = 192 if name == "fp8 block" else 64
    folder = mixtures.Made(kind, recipes.RECIPES[name], width=width).write(tmp_path / "model")
    alone = divided.run(folder, divided.operations(), Shard())
    layers = len(packs)

    def work(ranks: Ranks) -> Any:
        shard = Shard(ranks.rank, 2, whole)
        return divided.run(folder, joined(divided.operations(), ranks), shard)

    for found in on_threads(2, work):
        torch.testing.assert_close(found.logits_TV, alone.logits_TV, atol=1e-4, rtol=1e-4)
        assert torch.equal(found.counts, alone.counts)
    assert not caplog.records
    shares = packs[layers:]
    assert sum(shares) == layers * COUNTS[kind] * (1 if whole else 2)


def test_an_order_of_activations_stays_only_where_experts_are_whole(
    divided: ModuleType, recipes: ModuleType, mixtures: ModuleType, tmp_path: Path,
    packs: list[int], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    made = mixtures.Made("qwen3_moe", recipes.RECIPES["gptq order"])
    folder = made.write(tmp_path / "model")
    alone = divided.run(folder, divided.operations(), Shard())
    packs.clear()

    def work(ranks: Ranks, whole: bool) -> Any:
        shard = Shard(ranks.rank, 2, whole)
        return divided.run(folder, joined(divided.operations(), ranks), shard)

    for whole in (True, False):
        caplog.clear()
        for found in on_threads(2, lambda ranks, whole=whole: work(ranks, whole)):
            torch.testing.assert_close(found.logits_TV, alone.logits_TV, atol=1e-4, rtol=1e-4)
        told = [r.message for r in caplog.records if r.name == "jackfield.models"]
        assert len(told) == (0 if whole else 2)
        assert all("since some are stored plain, or so that ranks cannot" in each for each in told)
    assert sorted(packs) == [2, 2, 3, 3]
