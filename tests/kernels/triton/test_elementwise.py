"""Norms, rope and the gate against float64; the fused operation against those it stands for."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import HeadNorms, KvLayer, OpSpec, Projected
from jackfield.plugins.kernels.torch_ops.encoding import store
from jackfield.plugins.kernels.triton import launch
from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.qk_norm_rope_write import TritonQkNormRopeWrite
from jackfield.plugins.kernels.triton.rms_norm import TritonRmsNorm
from jackfield.plugins.kernels.triton.rope import TritonRope
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul

pytestmark = pytest.mark.few_combinations
EPS = 1e-5
ENCODINGS = [
    KvEncoding("fp8_e4m3", torch.float8_e4m3fn, 448.0),
    KvEncoding("fp8_e5m2", torch.float8_e5m2, 57344.0),
    KvEncoding("int8", torch.int8, 127.0),
]


def near(out: Tensor, truth: Tensor, ulps: float = 1) -> None:
    """Within a few units in the last place."""
    ulp = torch.finfo(out.dtype).eps
    floor = 1e-6 if out.dtype is torch.float32 else ulp / 4
    torch.testing.assert_close(out.double(), truth, atol=ulps * floor, rtol=ulps * ulp)


def same(out: Tensor, reference: Tensor) -> None:
    """Rounded where the reference is: only sums in another order may tell them apart."""
    if out.dtype is not torch.float32:
        assert (out != reference).double().mean() < 0.03


def normed(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.double()
    return wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight.double()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    wide, width = x.double(), cos.shape[1]
    low, high, rest = wide.split([width, width, x.shape[-1] - 2 * width], -1)
    c, s = cos.double()[:, None], sin.double()[:, None]
    return torch.cat([low * c - high * s, high * c + low * s, rest], -1)


def angles(tokens: int, width: int) -> tuple[Tensor, Tensor]:
    angles = torch.rand(tokens, width) * 100
    return angles.cos(), angles.sin()


def test_every_operation_serves(config: Any, device: torch.device, dtype: torch.dtype) -> None:
    operation = TritonRmsNorm(config)
    assert operation.unsupported(OpSpec(dtype, 64, 16, 100), device) == []
    assert operation.capturable()
    refusal = operation.unsupported(OpSpec(torch.float64, 64, 16, 100), device)
    assert "float64" in refusal[0]


SHAPES = [(64,), (1, 64), (5, 100), (3, 4, 80), (2, 3, 4, 16), (3, 576), (2, 8192), (1, 18944)]


@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm(config: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)
    near(TritonRmsNorm(config)(x, weight, EPS), normed(x, weight))


@pytest.mark.parametrize("rows", [1, 37])
def test_rms_norm_of_heads_inside_a_merged_projection(
    config: Any, dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "FEW", 16 * 64)
    merged, weight = torch.randn(rows, 200).to(dtype), torch.randn(16).to(dtype)
    before = merged.clone()
    heads = merged[:, 20:84].view(rows, 4, 16)
    near(TritonRmsNorm(config)(heads, weight, EPS), normed(heads, weight))
    assert torch.equal(merged, before)


def test_rms_norm_of_columns(config: Any, dtype: torch.dtype) -> None:
    x, weight = torch.randn(48, 3).to(dtype).T, torch.randn(48).to(dtype)
    near(TritonRmsNorm(config)(x, weight, EPS), normed(x, weight))


def test_nothing_comes_of_nothing(config: Any, dtype: torch.dtype) -> None:
    x, weight = torch.empty(0, 64).to(dtype), torch.randn(64).to(dtype)
    assert TritonRmsNorm(config)(x, weight, EPS).shape == (0, 64)
    assert TritonAddRmsNorm(config)(x, x.clone(), weight, EPS)[0].shape == (0, 64)
    assert TritonSiluMul(config)(x).shape == (0, 32)


@pytest.mark.parametrize("shape", [(1, 64), (9, 144), (2, 3, 576), (2, 1000), (2, 5120)])
def test_add_rms_norm(config: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, residual = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    weight = torch.randn(shape[-1]).to(dtype)
    total = x + residual
    out, kept = TritonAddRmsNorm(config)(x, residual, weight, EPS)
    assert torch.equal(kept, total)
    assert kept.data_ptr() == residual.data_ptr()
    near(out, normed(total, weight))
    same(out, rms_norm(total, weight.shape, weight, EPS))


def test_add_rms_norm_of_rows_with_gaps(config: Any, dtype: torch.dtype) -> None:
    x, residual = torch.randn(5, 200).to(dtype), torch.randn(5, 120).to(dtype)
    weight, before = torch.randn(96).to(dtype), residual.clone()
    total = x[:, 7:103] + residual[:, :96]
    out, kept = TritonAddRmsNorm(config)(x[:, 7:103], residual[:, :96], weight, EPS)
    assert torch.equal(kept, total)
    assert torch.equal(residual[:, 96:], before[:, 96:])
    near(out, normed(total, weight))


def test_rounding_keeps_nan_and_infinity(config: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([[1.0, float("nan")], [1.0, float("inf")]]).to(dtype)
    out, residual = TritonAddRmsNorm(config)(x, torch.zeros_like(x), torch.ones(2).to(dtype), 0)
    assert residual[0, 1].isnan()
    assert residual[1, 1].isinf()
    assert out[0].isnan().all()
    assert out[1, 1].isnan()


@pytest.mark.parametrize("shape", [(1, 32), (5, 202), (3, 3072), (2, 3, 48)])
def test_silu_mul(config: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    gate_up = (torch.randn(shape) * 3).to(dtype)
    gate_up[..., 0, :4] = torch.tensor([-200.0, 200.0, -88.5, 0.0]).to(dtype)
    gate, up = gate_up.double().chunk(2, -1)
    near(TritonSiluMul(config)(gate_up), silu(gate) * up)


def test_silu_mul_of_rows_with_gaps(config: Any, dtype: torch.dtype) -> None:
    gate_up = torch.randn(3, 200).to(dtype)[:, 9:109]
    gate, up = gate_up.double().chunk(2, -1)
    near(TritonSiluMul(config)(gate_up), silu(gate) * up)


@pytest.mark.parametrize(("head", "width"), [(64, 32), (80, 40), (96, 24), (128, 64), (64, 5)])
@pytest.mark.parametrize("tokens", [1, 5])
def test_rope(config: Any, dtype: torch.dtype, head: int, width: int, tokens: int) -> None:
    merged = torch.randn(tokens, 9, head).to(dtype)
    q, k, v = merged[:, :6], merged[:, 6:8], merged[:, 8:].clone()
    cos, sin = angles(tokens, width)
    truth = [rotated(x, cos, sin) for x in (q, k)]
    out = TritonRope(config)(q, k, cos, sin)
    for tensor, expected in zip(out, truth, strict=True):
        near(tensor, expected)
    assert out[0].data_ptr() == q.data_ptr()
    assert torch.equal(merged[:, 8:], v)


def pool(kv_heads: int, head: int, dtype: torch.dtype, encoding: KvEncoding | None) -> KvLayer:
    shape = (5, kv_heads, 4, head)
    if encoding is None:
        tensors = {name: torch.full(shape, float("nan"), dtype=dtype) for name in "kv"}
        return KvLayer(tensors, 1.0)
    tensors = {
        name: torch.full(shape, 0x7F, dtype=torch.uint8).view(encoding.dtype) for name in "kv"
    }
    scales = KvScales(torch.rand(kv_heads) / 8 + 0.01, torch.rand(kv_heads) / 8 + 0.01)
    return KvLayer(tensors, 1.0, None, scales if encoding.scaled else None, encoding)


def composed(projected: Projected) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by one plain operation after the other."""
    heads, kv_heads = projected.num_heads, projected.num_kv_heads
    q, k, v = projected.qkv_TMH.clone().split([heads, kv_heads, kv_heads], 1)
    if projected.norms is not None:
        q = rms_norm(q, q.shape[-1:], projected.norms.query_H, projected.norms.eps)
        k = rms_norm(k, k.shape[-1:], projected.norms.key_H, projected.norms.eps)
    turned = [rotated(x, projected.cos_TW, projected.sin_TW).to(q.dtype) for x in (q, k)]
    return turned[0], turned[1], v


def written(layer: KvLayer, name: str, slots: Tensor) -> Tensor:
    tensor = layer.tensors[name]
    plain = tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
    return plain.transpose(1, 2).flatten(0, 1)[slots]


def project(
    dtype: torch.dtype, tokens: int, counts: tuple[int, int], head: int, width: int, normed: bool
) -> Projected:
    heads, kv_heads = counts
    qkv = torch.randn(tokens, heads + 2 * kv_heads, head).to(dtype)
    norms = HeadNorms(torch.randn(head).to(dtype), torch.randn(head).to(dtype), EPS)
    return Projected(qkv, heads, kv_heads, *angles(tokens, width), norms if normed else None)


FUSED = [
    (1, (4, 2), 64, 32, True),
    (6, (3, 1), 80, 40, True),
    (6, (7, 1), 96, 24, False),
    (6, (16, 2), 128, 64, True),
    (2, (20, 5), 256, 128, False),
    (5, (5, 5), 64, 3, True),
]


@pytest.mark.parametrize(("tokens", "counts", "head", "width", "with_norms"), FUSED)
def test_fused_is_what_it_is_made_of(
    config: Any,
    dtype: torch.dtype,
    tokens: int,
    counts: tuple[int, int],
    head: int,
    width: int,
    with_norms: bool,
) -> None:
    projected = project(dtype, tokens, counts, head, width, with_norms)
    layer = pool(counts[1], head, dtype, None)
    slots = torch.randperm(20)[:tokens]
    q, k, v = composed(projected)
    out = TritonQkNormRopeWrite(config)(projected, layer, slots)
    assert out.data_ptr() == projected.qkv_TMH.data_ptr()
    near(out, q.double(), 2)
    near(written(layer, "k", slots), k.double(), 2)
    same(out, q)
    assert torch.equal(written(layer, "v", slots), v)
    for name in "kv":
        assert layer.tensors[name].isnan().sum() == (20 - tokens) * counts[1] * head


def test_fused_stores_nothing_for_padding(config: Any, dtype: torch.dtype) -> None:
    projected = project(dtype, 4, (4, 2), 64, 32, True)
    layer = pool(2, 64, dtype, None)
    slots = torch.tensor([-1, 19, -1, -1])
    _, k, v = composed(projected)
    TritonQkNormRopeWrite(config)(projected, layer, slots)
    near(written(layer, "k", slots[1:2]), k[1:2].double(), 2)
    assert torch.equal(written(layer, "v", slots[1:2]), v[1:2])
    for name in "kv":
        assert layer.tensors[name].isnan().sum() == 19 * 2 * 64


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.name)
@pytest.mark.parametrize("scaled", [True, False])
def test_fused_encodes(config: Any, dtype: torch.dtype, encoding: KvEncoding, scaled: bool) -> None:
    encoding = encoding._replace(scaled=scaled)
    projected = project(dtype, 5, (4, 2), 80, 32, True)
    layer, plain = pool(2, 80, dtype, encoding), pool(2, 80, dtype, None)
    slots = torch.tensor([3, -1, 0, 18, 7])
    copied = projected._replace(qkv_TMH=projected.qkv_TMH.clone())
    TritonQkNormRopeWrite(config)(copied, plain, slots)
    TritonQkNormRopeWrite(config)(projected, layer, slots)
    kept = slots[slots >= 0]
    for name in "kv":
        scale = getattr(layer.scales, f"{name}_K") if scaled else None
        codes = store(written(plain, name, kept), scale, encoding).view(torch.uint8)
        assert torch.equal(written(layer, name, kept), codes)
        untouched = written(layer, name, torch.tensor(sorted(set(range(20)) - set(kept.tolist()))))
        assert (untouched == 0x7F).all()


def test_fused_ignores_what_unused_rows_hold(config: Any, dtype: torch.dtype) -> None:
    projected = project(dtype, 3, (4, 2), 64, 32, True)
    projected.qkv_TMH[1] = float("nan")
    layer, slots = pool(2, 64, dtype, None), torch.tensor([4, -1, 9])
    q, k, _ = composed(projected)
    out = TritonQkNormRopeWrite(config)(projected, layer, slots)
    near(out[::2], q[::2].double(), 2)
    near(written(layer, "k", slots[::2]), k[::2].double(), 2)


@pytest.mark.parametrize(("width", "rows"), [(64, 70), (576, 9), (4096, 3)])
def test_a_row_does_not_depend_on_how_many_there_are(
    config: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, width: int, rows: int
) -> None:
    """Small steps are launched otherwise than large ones, but sum in the same order."""
    x, weight = torch.randn(rows, width).to(dtype), torch.randn(width).to(dtype)
    residual = torch.randn(rows, width).to(dtype)
    one = TritonAddRmsNorm(config)(x[:1], residual[:1].clone(), weight, EPS)[0]
    alone = TritonRmsNorm(config)(x[:1], weight, EPS)
    monkeypatch.setattr(launch, "FEW", 0)
    assert torch.equal(one, TritonAddRmsNorm(config)(x, residual, weight, EPS)[0][:1])
    assert torch.equal(alone, TritonRmsNorm(config)(x, weight, EPS)[:1])


def test_large_steps(config: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configurations of prefills, at a size that the interpreter can bear."""
    monkeypatch.setattr(launch, "FEW", 0)
    gate_up = torch.randn(3, 3000).to(dtype)
    gate, up = gate_up.double().chunk(2, -1)
    near(TritonSiluMul(config)(gate_up), silu(gate) * up)
    projected = project(dtype, 3, (17, 2), 80, 24, True)
    layer, slots = pool(2, 80, dtype, None), torch.tensor([4, 7, 9])
    q, k, v = composed(projected)
    turned = [x.double() for x in (q, k)]
    plain = projected.qkv_TMH.clone()
    near(TritonQkNormRopeWrite(config)(projected, layer, slots), turned[0], 2)
    near(written(layer, "k", slots), turned[1], 2)
    assert torch.equal(written(layer, "v", slots), v)
    truth = rotated(plain[:, :17], projected.cos_TW, projected.sin_TW)
    near(
        TritonRope(config)(plain[:, :17], plain[:, 17:19], projected.cos_TW, projected.sin_TW)[0],
        truth,
    )
