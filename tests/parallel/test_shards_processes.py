"""Ranks that are processes: the collectives of torch, and models on them."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

from jackfield.core.api import Shard
from jackfield.core.testing.process_ranks import on_processes

SCRIPT = Path(__file__).with_name("rank_script.py")
KINDS = (("llama tied", False), ("qwen2", False), ("qwen3", False), ("qwen2_moe", False),
         ("qwen3_moe", True), ("deepseek_v2", False), ("deepseek_v3", True))  # fmt: skip
QUANTIZED = ("awq 32", "gptq 64", "fp8 block")


class Started(NamedTuple):
    """ranks: what each made of all cases. whole: what one rank makes of them."""

    size: int
    ranks: list[Any]
    whole: list[Any]


@pytest.fixture(scope="module")
def cases(
    tmp_path_factory: pytest.TempPathFactory,
    divided: ModuleType,
    load_module: Callable[[Path], ModuleType],
) -> list[tuple[Path, bool]]:
    recipes = load_module(Path(__file__).parents[1] / "quant" / "conftest.py")
    folder = tmp_path_factory.mktemp("models")
    found = [(divided.write(folder / kind, kind), whole) for kind, whole in KINDS]
    for name in QUANTIZED:
        checkpoint = recipes.Checkpoint(recipes.RECIPES[name])
        found.append((checkpoint.write(folder / name), False))
    return found


@pytest.fixture(scope="module", params=[2, 4])
def started(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    divided: ModuleType,
    cases: list[tuple[Path, bool]],
) -> Started:
    ranks = on_processes(request.param, SCRIPT, tmp_path_factory.mktemp("ranks"), cases)
    whole = [divided.run(folder, divided.operations(), Shard(), (9,)) for folder, _ in cases]
    return Started(request.param, ranks, whole)


def test_models_equal_those_of_one_rank(started: Started) -> None:
    for index, whole in enumerate(started.whole):
        first = started.ranks[0]["models"][index][0]
        torch.testing.assert_close(first, whole.logits_TV, atol=1e-4, rtol=1e-4)
        assert torch.equal(first.argmax(-1), whole.logits_TV.argmax(-1))
        for rank in started.ranks:
            logits_TV, _, counts = rank["models"][index]
            assert torch.equal(logits_TV, first)
            assert whole.counts is None or torch.equal(counts, whole.counts)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64], ids=str
)
def test_collectives(started: Started, dtype: torch.dtype) -> None:
    size, x = started.size, torch.arange(24).view(4, 6).to(dtype)
    parts = torch.stack([x * (rank + 1) for rank in range(size)])
    for rank in started.ranks:
        assert torch.equal(rank[f"sum {dtype}"], parts.sum(0).to(dtype))
        assert torch.equal(rank[f"gathered {dtype}"], parts)
        total, gathered = rank[f"gaps {dtype}"]
        assert torch.equal(total, parts[..., 1:4].sum(0).to(dtype))
        assert torch.equal(gathered, parts[..., 1:4])
        assert [each.shape for each in rank["nothing"]] == [(0, 3), (size, 0, 3)]


def test_sums_have_the_same_bits_on_all_ranks_and_each_time(started: Started) -> None:
    first = started.ranks[0]["noise"][0]
    assert all(torch.equal(again, first) for rank in started.ranks for again in rank["noise"])


def test_a_rank_takes_its_part_only(started: Started) -> None:
    """Norms, and what of it has fewer heads than ranks, are on all of them."""
    for index in range(3):
        taken = [rank["models"][index][1] for rank in started.ranks]
        whole = started.whole[index].bytes_taken
        assert whole < sum(taken) < 1.25 * whole
