"""Products with quantized weights, alone and merged, against float64 ones of what they mean."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.plugins.kernels.torch_ops import quant_matmul
from jackfield.plugins.kernels.torch_ops.quant_matmul import TorchQuantMatmul
from jackfield.plugins.models.blocks.quant_merge import merge

INPUTS = 40


def weight(
    kind: QuantKind, outputs: int, *, group: int = 16, rows: int = 1, zeros: bool = False,
    order_I: Tensor | None = None,
) -> QuantWeight:  # fmt: skip
    table = (-(-outputs // rows), -(-INPUTS // group))
    if kind is QuantKind.FP8:
        values = torch.randn(outputs, INPUTS).to(torch.float8_e4m3fn)
    else:
        columns = INPUTS // 2 if kind is QuantKind.INT4 else INPUTS
        values = torch.randint(0, 256, (outputs, columns), dtype=torch.uint8)
    points = torch.randint(0, 2 * kind.middle, table, dtype=torch.uint8) if zeros else None
    scales = (torch.rand(table) + 0.5) / max(kind.middle, 1)
    return QuantWeight(kind, values, scales, points, group, rows, (outputs, INPUTS), order_I)


def meant(weight: QuantWeight) -> Tensor:
    """Entry by entry, in the order of the model's inputs."""
    result = torch.zeros(weight.shape, dtype=torch.float64)
    for o in range(weight.shape[0]):
        for i in range(INPUTS):
            at = o // weight.rows, i // weight.group
            value: Any = weight.values[o, i // 2 if weight.kind is QuantKind.INT4 else i]
            if weight.kind is QuantKind.INT4:
                value = int(value) >> 4 if i % 2 else int(value) & 15
            zero = weight.kind.middle if weight.zeros_RG is None else int(weight.zeros_RG[at])
            column = i if weight.order_I is None else int(weight.order_I[i])
            result[o, column] = (float(value) - zero) * float(weight.scales_RG[at])
    return result


CASES = {
    "int4": weight(QuantKind.INT4, 37),
    "int4 zeros order": weight(QuantKind.INT4, 37, zeros=True, order_I=torch.randperm(INPUTS)),
    "int8 whole": weight(QuantKind.INT8, 20, group=INPUTS),
    "int8 zeros": weight(QuantKind.INT8, 20, zeros=True),
    "fp8 channel": weight(QuantKind.FP8, 20, group=INPUTS),
    "fp8 blocks": weight(QuantKind.FP8, 37, rows=5),
}


@pytest.mark.parametrize("at_once", [1, 200, 1 << 20])
@pytest.mark.parametrize("case", CASES)
def test_equals_float64(case: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quant_matmul, "ELEMENTS_AT_ONCE", at_once)
    one, product = CASES[case], TorchQuantMatmul()
    bias = torch.randn(one.shape[0])
    for dtype, close in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)):
        for rows in (0, 1, 7):
            x = torch.randn(rows, INPUTS).to(dtype)
            expected = x.double() @ meant(one).T
            for shift in (bias.to(dtype), None):
                found = product(x, product.pack(one, shift))
                wanted = expected if shift is None else expected + shift.double()
                assert found.dtype is dtype and found.shape == wanted.shape
                scale = 1 + wanted.abs().max() if rows else 1
                assert not rows or (found.double() - wanted).abs().max() < close * scale


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"zeros": True}, {}),
        ({"kind": QuantKind.FP8, "rows": 8}, {"kind": QuantKind.FP8, "rows": 8}),
        ({"kind": QuantKind.FP8, "rows": 5}, {"kind": QuantKind.FP8, "rows": 5}),
        ({"kind": QuantKind.FP8, "rows": 4}, {"kind": QuantKind.FP8, "rows": 2}),
    ],
    ids=["alike", "one with zero points", "whole blocks", "a block ends early", "unlike blocks"],
)
def test_merged_outputs_lie_side_by_side(first: dict[str, Any], second: dict[str, Any]) -> None:
    parts = [
        weight(**{"kind": QuantKind.INT4, "outputs": outputs, **options})
        for outputs, options in ((16, first), (12, second))
    ]
    merged = merge(parts)
    assert merged is not None and merged.shape == (28, INPUTS)
    assert torch.equal(meant(merged), torch.cat([meant(part) for part in parts]))
    assert (merged.rows > 1) == (first.get("rows") == 8)


def test_merged_inputs_keep_their_order() -> None:
    order_I = torch.randperm(INPUTS)
    parts = [weight(QuantKind.INT4, 8, order_I=order_I), weight(QuantKind.INT4, 8, order_I=order_I)]
    merged = merge(parts)
    assert merged is not None
    assert torch.equal(meant(merged), torch.cat([meant(part) for part in parts]))


@pytest.mark.parametrize("change", ["kind", "group", "order", "no order"])
def test_what_is_not_alike_stays_apart(change: str) -> None:
    one = weight(QuantKind.INT8, 8, order_I=torch.randperm(INPUTS))
    other = {
        "kind": weight(QuantKind.INT4, 8, order_I=one.order_I),
        "group": weight(QuantKind.INT8, 8, group=8, order_I=one.order_I),
        "order": replace(one, order_I=torch.arange(INPUTS)),
        "no order": replace(one, order_I=None),
    }[change]
    assert merge([one, other]) is None and merge([one, one]) is not None
