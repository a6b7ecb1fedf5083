"""A model divided among ranks gives what one rank gives. Ranks are threads here."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from jackfield.core.api import Ranks, Shard
from jackfield.core.testing.thread_ranks import joined, on_threads

CLOSE = 1e-4
MODELS = (
    "llama", "llama tied", "llama kv 4", "qwen1", "qwen2", "qwen3", "mixtral", "qwen2_moe",
    "qwen3_moe", "deepseek_moe", "deepseek_v2", "deepseek_v3",
)  # fmt: skip
EXPERTS = MODELS[6:]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, divided: ModuleType) -> Callable[..., Path]:
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = divided.write(tmp_path_factory.mktemp("model"), kind)
        return made[kind]

    return folder


def ranks_of(divided: ModuleType, folder: Path, size: int, whole_experts: bool = False) -> Any:
    def work(ranks: Ranks) -> Any:
        ops = joined(divided.operations(), ranks)
        return divided.run(folder, ops, Shard(ranks.rank, size, whole_experts))

    return on_threads(size, work)


def check(divided: ModuleType, folder: Path, found: Any) -> Any:
    whole = divided.run(folder, divided.operations(), Shard())
    for rank in found:
        torch.testing.assert_close(rank.logits_TV, whole.logits_TV, atol=CLOSE, rtol=CLOSE)
        assert torch.equal(rank.logits_TV, found[0].logits_TV)
        assert torch.equal(rank.logits_TV.argmax(-1), whole.logits_TV.argmax(-1))
        if whole.counts is not None:
            assert torch.equal(rank.counts, whole.counts)
    joined_parts = torch.cat([rank.part[0] for rank in found], 1)
    assert joined_parts.shape[1] == whole.logits_TV.shape[1]
    return whole


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("kind", MODELS)
def test_logits_equal(
    divided: ModuleType, folders: Callable[..., Path], kind: str, size: int
) -> None:
    check(divided, folders(kind), ranks_of(divided, folders(kind), size))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", EXPERTS)
def test_logits_equal_with_whole_experts(
    divided: ModuleType, folders: Callable[..., Path], kind: str, size: int
) -> None:
    check(divided, folders(kind), ranks_of(divided, folders(kind), size, True))
