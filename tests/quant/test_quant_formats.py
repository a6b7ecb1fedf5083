"""Words of random bits in every format, read entry by entry as the formats are documented."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.model import Shard, Split
from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.core.checkpoint.quant_part import quant_part

OUTPUTS, INPUTS, GROUP = 16, 24, 8
GROUPS = INPUTS // GROUP
SHAPE = (OUTPUTS, INPUTS)
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True}
Read = Callable[..., QuantWeight]


def words(*shape: int) -> Tensor:
    return torch.randint(-(2**31), 2**31, shape).int()


def scales(*shape: int) -> Tensor:
    return torch.rand(shape).half() + 0.5


def bits(word: Tensor, place: int, count: int) -> int:
    return (int(word) >> (place * count)) & (2**count - 1)


def table(entry: Callable[[int, int], float]) -> Tensor:
    return torch.tensor([[entry(o, i) for i in range(INPUTS)] for o in range(OUTPUTS)])


def awq_tensors() -> dict[str, Tensor]:
    return {
        "qweight": words(INPUTS, OUTPUTS // 8),
        "qzeros": words(GROUPS, OUTPUTS // 8),
        "scales": scales(GROUPS, OUTPUTS),
    }


def awq_meant(t: dict[str, Tensor]) -> Tensor:
    order = (0, 2, 4, 6, 1, 3, 5, 7)

    def entry(o: int, i: int) -> float:
        word, place, g = o // 8, order.index(o % 8), i // GROUP
        value, zero = bits(t["qweight"][i, word], place, 4), bits(t["qzeros"][g, word], place, 4)
        return (value - zero) * float(t["scales"][g, o])

    return table(entry)


def test_awq(read: Read) -> None:
    tensors = awq_tensors()
    weight = read(tensors, SHAPE, AWQ)
    assert torch.equal(weight.dequantized(torch.float32), awq_meant(tensors))
    assert weight.values.nbytes == OUTPUTS * INPUTS // 2


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize(("form", "less"), [("gptq", 1), ("gptq_v2", 0)])
@pytest.mark.parametrize("ordered", [False, True])
def test_gptq(read: Read, count: int, form: str, less: int, ordered: bool) -> None:
    per = 32 // count
    groups_I = torch.arange(INPUTS) // GROUP
    if ordered:
        groups_I = groups_I[torch.randperm(INPUTS)]
    t = {
        "qweight": words(INPUTS // per, OUTPUTS),
        "qzeros": words(GROUPS, OUTPUTS // per),
        "scales": scales(GROUPS, OUTPUTS),
        "g_idx": groups_I.int(),
    }
    config = {"quant_method": "gptq", "bits": count, "group_size": GROUP, "sym": False,
              "desc_act": ordered, "checkpoint_format": form}  # fmt: skip

    def entry(o: int, i: int) -> float:
        g = int(groups_I[i])
        value = bits(t["qweight"][i // per, o], i % per, count)
        zero = (bits(t["qzeros"][g, o // per], o % per, count) + less) % 2**count
        return (value - zero) * float(t["scales"][g, o])

    weight = read(t, SHAPE, config)
    stored_OI = weight.dequantized(torch.float32)
    order_I = torch.arange(INPUTS) if weight.order_I is None else weight.order_I
    assert torch.equal(stored_OI, table(entry)[:, order_I])
    assert (weight.order_I is not None) == ordered


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_packed(read: Read, count: int, symmetric: bool) -> None:
    per = 32 // count
    t = {
        "weight_packed": words(OUTPUTS, INPUTS // per),
        "weight_scale": scales(OUTPUTS, GROUPS),
        "weight_shape": torch.tensor(SHAPE),
    }
    if not symmetric:
        t["weight_zero_point"] = words(OUTPUTS // per, GROUPS)
    weights = {"num_bits": count, "type": "int", "strategy": "group", "group_size": GROUP,
               "symmetric": symmetric}  # fmt: skip
    group = {"targets": ["Linear"], "weights": weights}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized",
              "config_groups": {"group_0": group}}  # fmt: skip

    def entry(o: int, i: int) -> float:
        g, zero = i // GROUP, 2 ** (count - 1)
        if not symmetric:
            zero = bits(t["weight_zero_point"][o // per, g], o % per, count)
        value = bits(t["weight_packed"][o, i // per], i % per, count)
        return (value - zero) * float(t["weight_scale"][o, g])

    assert torch.equal(read(t, SHAPE, config).dequantized(torch.float32), table(entry))


def test_fp8_blocks_that_end_with_the_weight(read: Read) -> None:
    values = torch.randn(SHAPE).to(torch.float8_e4m3fn)
    inverse = torch.rand(3, 4) + 0.5
    config = {"quant_method": "fp8", "weight_block_size": [7, 7]}
    weight = read({"weight": values, "weight_scale_inv": inverse}, SHAPE, config)
    expected = table(lambda o, i: float(values[o, i].float() * inverse[o // 7, i // 7]))
    assert torch.equal(weight.dequantized(torch.float32), expected)
    assert torch.equal(weight.block(7, 16).dequantized(torch.float32), expected[7:])


@pytest.mark.parametrize("split", [Split.ROWS, Split.COLUMNS])
def test_parts_of_ranks(read: Read, split: Split) -> None:
    tensors = awq_tensors()
    axis = split.value
    ranks = 2 if split is Split.ROWS else 3
    parts = [read(tensors, SHAPE, AWQ, Shard(rank, ranks), split) for rank in range(ranks)]
    joined = torch.cat([part.dequantized(torch.float32) for part in parts], axis)
    assert torch.equal(joined, awq_meant(tensors))
    assert parts[0].values.untyped_storage().nbytes() == OUTPUTS * INPUTS // 2 // ranks


@pytest.mark.parametrize(
    ("block", "split", "edges"),
    [
        ([8, 32], Split.COLUMNS, [0, 16, 48, 64]),
        ([8, 48], Split.COLUMNS, [0, 16, 64]),
        ([6, 32], Split.ROWS, [0, 6, 10, 20]),
        ([20, 32], Split.ROWS, [0, 5, 20]),
        ([5, 64], Split.COLUMNS, [0, 2, 64]),
    ],
    ids=["groups in halves", "a last group that is short", "whole blocks and halves",
         "one block", "one group"],
)  # fmt: skip
def test_parts_that_cut_blocks(block: list[int], split: Split, edges: list[int]) -> None:
    (rows, group), kind = block, QuantKind.INT4
    values = torch.randint(0, 256, (20, 32), dtype=torch.uint8)
    table_RG = torch.rand(-(-20 // rows), -(-64 // group))
    zeros_RG = torch.randint(0, 16, table_RG.shape, dtype=torch.uint8)
    weight = QuantWeight(kind, values, table_RG, zeros_RG, group, rows, (20, 64))
    shard, whole = Shard(0, len(edges) - 1), weight.dequantized(torch.float32)
    for begin, end in pairwise(edges):
        part = quant_part("one", weight, split, shard, range(begin, end))
        assert part is not None
        wanted = whole[begin:end] if split is Split.ROWS else whole[:, begin:end]
        assert torch.equal(part.dequantized(torch.float32), wanted)
        assert part.shape == wanted.shape


@pytest.mark.parametrize(("ordered", "part"), [(False, range(8)), (False, range(17)), (True, None)])
def test_parts_that_cannot_be_held_as_they_are_stored(ordered: bool, part: range | None) -> None:
    """Scales of few inputs, a cut byte, inputs that are not in order."""
    values = torch.randint(0, 256, (20, 32), dtype=torch.uint8)
    order_I = torch.randperm(64) if ordered else None
    table_RG = torch.rand(20, 2)
    weight = QuantWeight(QuantKind.INT4, values, table_RG, None, 32, 1, (20, 64), order_I)
    assert quant_part("one", weight, Split.COLUMNS, Shard(0, 2), part) is None
    rows = quant_part("one", weight, Split.ROWS, Shard(1, 2))
    assert rows is not None and rows.order_I is order_I and torch.equal(rows.values, values[10:])


def test_fp8_of_one_scale_has_it_for_each_output(read: Read) -> None:
    values: Any = torch.randn(SHAPE).to(torch.float8_e4m3fn)
    weight = read(
        {"weight": values, "weight_scale": torch.tensor(0.5)}, SHAPE, {"quant_method": "fp8"}
    )
    assert weight.scales_RG.shape == (OUTPUTS, 1)
    assert torch.equal(weight.dequantized(torch.float32), values.float() * 0.5)
