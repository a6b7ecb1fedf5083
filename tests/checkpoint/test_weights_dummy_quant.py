"""Weights that are made up for a config that says they are quantized."""

from typing import Any

import pytest
import torch

from jackfield.core.api.errors import CheckpointError
from jackfield.core.api.model import Shard, Split
from jackfield.core.api.quant import QuantizedWeights, QuantKind, QuantWeight
from jackfield.core.bench.shapes import QUANTIZED, SHAPES
from jackfield.core.checkpoint.dummy_quant_weights import made_up_weights
from jackfield.core.checkpoint.quant_plan import read_quant_plan

CPU = torch.device("cpu")
UP = "model.layers.0.mlp.up_proj.weight"


def dummy(config: Any, rank: int = 0, size: int = 1, seed: int = 3) -> Any:
    plan = read_quant_plan({"quantization_config": config})
    return made_up_weights(torch.float32, CPU, Shard(rank, size), seed, plan)


def taken(name: str, shape: tuple[int, int] = (256, 512), **options: Any) -> QuantWeight:
    weight = dummy(QUANTIZED[name], **options).take_quantized(UP, shape)
    assert weight is not None
    return weight


@pytest.mark.parametrize(
    ("name", "kind", "group", "table", "zeros"),
    [
        ("awq", QuantKind.INT4, 128, (256, 4), True),
        ("awq32", QuantKind.INT4, 32, (256, 16), True),
        ("gptq", QuantKind.INT4, 128, (256, 4), False),
        ("int8", QuantKind.INT8, 512, (256, 1), False),
        ("fp8", QuantKind.FP8, 512, (256, 1), False),
        ("fp8block", QuantKind.FP8, 128, (2, 4), False),
    ],
)
def test_as_the_config_says(
    name: str, kind: QuantKind, group: int, table: tuple[int, int], zeros: bool
) -> None:
    weight = taken(name)
    assert (weight.kind, weight.group, weight.shape) == (kind, group, (256, 512))
    assert weight.scales_RG.shape == table
    assert (weight.zeros_RG is not None) == zeros
    matrix = weight.dequantized(torch.float32)
    assert matrix.shape == (256, 512)
    assert matrix.std().item() == pytest.approx(0.02, rel=0.02)
    assert matrix.mean().item() == pytest.approx(0.0, abs=2.5e-3)  # integers have no middle
    assert len(torch.unique(matrix, dim=0)) == 256


def test_codes_depend_on_seed_and_name_only() -> None:
    first = taken("awq")
    assert torch.equal(first.values, taken("awq").values)
    assert not torch.equal(first.values, taken("awq", seed=4).values)
    other = dummy(QUANTIZED["awq"]).take_quantized("another.weight", (256, 512))
    assert not torch.equal(first.values, other.values)


@pytest.mark.parametrize("name", ["awq", "int8", "fp8block"])
@pytest.mark.parametrize("split", [Split.ROWS, Split.COLUMNS])
def test_a_shard_is_the_slice_of_the_whole(name: str, split: Split) -> None:
    whole = taken(name).dequantized(torch.float32)
    for rank in range(2):
        part = dummy(QUANTIZED[name], rank, 2).take_quantized(UP, (256, 512), split)
        expected = whole.chunk(2, split.value)[rank]
        assert torch.equal(part.dequantized(torch.float32), expected)


def test_what_does_not_divide() -> None:
    with pytest.raises(CheckpointError, match="up_proj"):
        dummy(QUANTIZED["fp8block"], 0, 2).take_quantized(UP, (385, 512), Split.ROWS)


def test_what_is_left_out_is_plain() -> None:
    weights = dummy({**QUANTIZED["awq"], "modules_to_not_convert": ["up_proj"]})
    assert isinstance(weights, QuantizedWeights)
    assert weights.take_quantized(UP, (256, 512)) is None
    assert weights.take_quantized("model.norm", (4, 4)) is None
    assert weights.take(UP, (256, 512)).std().item() == pytest.approx(0.02, rel=0.02)


def test_plain_weights_know_nothing_of_it() -> None:
    assert not isinstance(made_up_weights(torch.float32, CPU, Shard(), 0, None), QuantizedWeights)


def test_every_shape_has_a_plan() -> None:
    for name, config in SHAPES.items():
        plan = read_quant_plan(config)
        assert (plan is None) == ("quantization_config" not in config)
        assert (plan is None) == (name.rpartition("-")[2] not in QUANTIZED)
