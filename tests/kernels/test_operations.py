"""Norms, rope, the gate and products of every plugin against float64."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.torch_ops.linear import TRANSPOSED_MAX_ELEMENTS, TorchLinear

Ops = Mapping[str, Any]
TYPES = [torch.float32, torch.bfloat16]
EPS = 1e-5


def near(out: Tensor, truth: Tensor) -> None:
    """A few units in the last place of the type."""
    ulp = torch.finfo(out.dtype).eps
    torch.testing.assert_close(out.double(), truth, atol=4 * ulp, rtol=2 * ulp)


def normed(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.double()
    return wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight.double()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 64), (5, 100), (3, 4, 16), (300, 576), (2, 3, 4, 16)])
def test_rms_norm(operations: Ops, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)
    near(operations["rms_norm"](x, weight, EPS), normed(x, weight))


@pytest.mark.parametrize("dtype", TYPES)
def test_rms_norm_of_heads_inside_a_merged_projection(operations: Ops, dtype: torch.dtype) -> None:
    merged, weight = torch.randn(7, 200).to(dtype), torch.randn(16).to(dtype)
    before = merged.clone()
    heads = merged[:, 20:84].view(7, 4, 16)
    near(operations["rms_norm"](heads, weight, EPS), normed(heads, weight))
    assert torch.equal(merged, before)


def test_rms_norm_with_a_weight_of_another_type(operations: Ops) -> None:
    x, weight = torch.randn(4, 32), torch.randn(32).bfloat16()
    near(operations["rms_norm"](x, weight.float(), EPS), normed(x, weight))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [1, 9, 200])
def test_add_rms_norm(operations: Ops, dtype: torch.dtype, rows: int) -> None:
    x, residual = torch.randn(2, rows, 144).to(dtype)
    weight = torch.randn(144).to(dtype)
    total = x + residual
    out, carried = operations["add_rms_norm"](x, residual, weight, EPS)
    assert torch.equal(carried, total)
    near(out, normed(total, weight))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    wide, width = x.double(), cos.shape[1]
    low, high, rest = wide.split([width, width, x.shape[-1] - 2 * width], -1)
    c, s = cos.double()[:, None], sin.double()[:, None]
    return torch.cat([low * c - high * s, high * c + low * s, rest], -1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [32, 16, 5])
@pytest.mark.parametrize("tokens", [1, 90])
def test_rope(operations: Ops, dtype: torch.dtype, width: int, tokens: int) -> None:
    merged = torch.randn(tokens, 8 * 64).to(dtype)
    q = merged[:, : 4 * 64].view(tokens, 4, 64)
    k = merged[:, 4 * 64 : 6 * 64].view(tokens, 2, 64)
    v = merged[:, 6 * 64 :].clone()
    angles = torch.rand(tokens, width) * 100
    truth = [rotated(x, angles.cos(), angles.sin()) for x in (q, k)]
    out = operations["rope"](q, k, angles.cos(), angles.sin())
    for tensor, expected in zip(out, truth, strict=True):
        near(tensor, expected)
    assert torch.equal(merged[:, 6 * 64 :], v)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 32), (5, 202), (300, 1536)])
def test_silu_mul(operations: Ops, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    gate_up = (torch.randn(shape) * 3).to(dtype)
    gate_up[0, :4] = torch.tensor([-200.0, 200.0, -88.5, 0.0])
    gate, up = gate_up.double().chunk(2, -1)
    out = operations["silu_mul"](gate_up).double()
    ulp = torch.finfo(dtype).eps
    torch.testing.assert_close(out, silu(gate) * up, atol=4 * ulp, rtol=4 * ulp)


def test_rounding_keeps_nan_and_infinity(operations: Ops) -> None:
    x = torch.tensor([[1.0, float("nan")], [1.0, float("inf")]]).bfloat16()
    out, residual = operations["add_rms_norm"](x, torch.zeros_like(x), torch.ones(2).bfloat16(), 0)
    assert residual[0, 1].isnan()
    assert residual[1, 1].isinf()
    assert out[0].isnan().all()


@pytest.mark.parametrize("dtype", [*TYPES, torch.float64])
@pytest.mark.parametrize("shape", [(1, 48, 80), (7, 80, 48), (16, 1100, 1000)])
@pytest.mark.parametrize("biased", [True, False])
def test_linear(dtype: torch.dtype, shape: tuple[int, int, int], biased: bool) -> None:
    rows, inputs, outputs = shape
    linear = TorchLinear()
    x = torch.randn(rows, inputs + 3).to(dtype)[:, :inputs]
    weight = (torch.randn(outputs, inputs) * inputs**-0.5).to(dtype)
    bias = torch.randn(outputs).to(dtype) if biased else None
    truth = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    out = linear(x, linear.pack(weight, bias))
    assert out.dtype is dtype
    torch.testing.assert_close(out.double(), truth, atol=16 * torch.finfo(dtype).eps, rtol=1e-2)


def test_linear_says_why_weights_are_not_packed() -> None:
    linear = TorchLinear()
    linear.pack(torch.randn(4, 8).double(), None)
    linear.pack(torch.randn(4, 8).double(), None)
    assert len(linear.notes) == 1
    assert "float64" in linear.notes[0]


def test_linear_falls_back_if_the_private_operator_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "jackfield.plugins.kernels.torch_ops.linear.OneDnnWeight.__call__"
    monkeypatch.setattr(module, lambda self, x: torch.zeros(len(x), 32))
    linear = TorchLinear()
    weight = torch.randn(1100, TRANSPOSED_MAX_ELEMENTS // 1000)
    x = torch.randn(2, weight.shape[1])
    torch.testing.assert_close(linear(x, linear.pack(weight, None)), x @ weight.T)
    assert "wrong results" in linear.notes[0]


def test_threads_divide_the_rows(operations: Ops) -> None:
    x, weight, gate_up = torch.randn(200, 256), torch.randn(256), torch.randn(200, 512)
    torch.set_num_threads(3)
    near(operations["rms_norm"](x, weight, EPS), normed(x, weight))
    gate, up = gate_up.double().chunk(2, -1)
    near(operations["silu_mul"](gate_up), silu(gate) * up)


def test_every_operation_accepts_what_it_is_made_for(operations: Ops) -> None:
    spec = OpSpec(torch.bfloat16, 64, 16, 1000)
    for name, operation in operations.items():
        if name not in ("attention", "step_inputs"):
            assert operation.unsupported(spec, torch.device("cpu")) == []
