"""A model divided among ranks gives what one rank gives. Ranks are threads here."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

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


@pytest.mark.parametrize("size", [2, 8])
@pytest.mark.parametrize(
    ("kind", "head"), [("llama", "lm_head"), ("llama tied", "model.embed_tokens")]
)
def test_padding_is_never_the_best(
    divided: ModuleType, tmp_path: Path, kind: str, head: str, size: int
) -> None:
    """The ids do not divide, and all logits are below the zeros that padding would give."""
    file = divided.write(tmp_path, kind) / "model.safetensors"
    tensors = load_file(file)
    tensors[f"{head}.weight"] = -tensors[f"{head}.weight"].abs() - 0.1
    save_file(tensors, file)
    wanted_V = tensors[f"{head}.weight"].sum(1)
    for rank in ranks_of(divided, tmp_path, size):
        assert rank.logits_TV.shape[1] == divided.VOCAB
    parts = [rank.part for rank in ranks_of(divided, tmp_path, size)]
    assert [first for _, first in parts] == sorted(first for _, first in parts)
    logits_TV = torch.cat([logits_TP for logits_TP, _ in parts], 1)
    assert logits_TV.max() < 0
    torch.testing.assert_close(logits_TV, wanted_V.expand(3, -1), atol=CLOSE, rtol=CLOSE)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", EXPERTS)
def test_logits_equal_with_whole_experts(
    divided: ModuleType, folders: Callable[..., Path], kind: str, size: int
) -> None:
    check(divided, folders(kind), ranks_of(divided, folders(kind), size, True))
