"""Weights that are made up."""

import pytest
import torch

from jackfield.core.api.errors import CheckpointError
from jackfield.core.api.model import Shard, Split
from jackfield.core.checkpoint.dummy_weights import POOL_SIZE, DummyWeights

CPU = torch.device("cpu")


def dummy(rank: int = 0, size: int = 1, seed: int = 3) -> DummyWeights:
    return DummyWeights(torch.float32, CPU, Shard(rank, size), seed)


@pytest.fixture(scope="module")
def whole() -> DummyWeights:
    return dummy()


def test_kinds(whole: DummyWeights) -> None:
    matrix = whole.take("w.weight", (300, 200))
    assert matrix.std().item() == pytest.approx(0.02, rel=0.02)
    assert matrix.mean().item() == pytest.approx(0.0, abs=3e-4)
    assert torch.equal(whole.take("norm.weight", (7,)), torch.ones(7))
    assert torch.equal(whole.take("q.bias", (7,)), torch.zeros(7))
    assert not whole.has("w.weight")


def test_values_depend_on_seed_and_name_only(whole: DummyWeights) -> None:
    other = dummy()
    second, first = other.take("b", (8, 8)), other.take("a", (8, 8))
    assert torch.equal(whole.take("a", (8, 8)), first)
    assert torch.equal(whole.take("b", (8, 8)), second)
    assert not torch.equal(first, second)
    assert not torch.equal(dummy(seed=4).take("a", (8, 8)), first)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_shard_is_the_slice_of_the_whole(whole: DummyWeights, rank: int) -> None:
    part = dummy(rank, 3)
    matrix = whole.take("w", (9, 12))
    assert torch.equal(part.take("w", (9, 12), Split.ROWS), matrix.chunk(3, 0)[rank])
    assert torch.equal(part.take("w", (9, 12), Split.COLUMNS), matrix.chunk(3, 1)[rank])
    assert torch.equal(part.take("w", (9, 12)), matrix)
    assert part.take("q.bias", (9,), Split.ROWS).shape == (3,)


def test_what_does_not_divide() -> None:
    with pytest.raises(CheckpointError, match="'w'"):
        dummy(0, 2).take("w", (9, 12), Split.ROWS)


def test_a_matrix_larger_than_the_pool_has_no_two_equal_rows() -> None:
    columns = 512
    rows = 2 * POOL_SIZE // columns
    matrix = dummy().take("embedding", (rows, columns))
    assert len(torch.unique(matrix[:, :3], dim=0)) == rows


def test_element_type() -> None:
    weights = DummyWeights(torch.bfloat16, CPU, Shard(), 0)
    assert weights.take("w", (2, 2)).dtype == torch.bfloat16
    assert weights.take("norm.weight", (2,)).dtype == torch.bfloat16
