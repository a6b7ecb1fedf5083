"""Stored keys and values are, byte for byte, those of the reference."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.cache.fp8 import Fp8
from jackfield.plugins.kernels.torch_ops.encoding import store
from jackfield.plugins.kernels.triton.encode import as_codes, encoding_reasons
from jackfield.plugins.kernels.triton.kv_write import kv_write

NAMES = ["e4m3", "e5m2", "int8"]
HEADS, SIZE, BLOCKS = 3, 8, 5


def encoding_of(name: str) -> KvEncoding:
    return Fp8(Fp8.Config(format=name)).encode(None)


def pool(head_dim: int, dtype: torch.dtype) -> KvLayer:
    shape = (BLOCKS, HEADS, SIZE, head_dim)
    k, v = (torch.full(shape, 77, dtype=torch.uint8).to(dtype) for _ in range(2))
    return KvLayer({"k": k, "v": v}, 1.0)


def at_slots(stored: Tensor, slots: list[int]) -> Tensor:
    """`[T, K, H]` of a pool, as bytes if its type has one."""
    return torch.stack([as_codes(stored)[slot // SIZE, :, slot % SIZE] for slot in slots])


def written(stored: Tensor) -> int:
    """Positions at which not everything is as it was."""
    before = as_codes(torch.tensor(77, dtype=torch.uint8).to(stored.dtype))
    return int((as_codes(stored) != before).any(3).any(1).sum())


@pytest.mark.parametrize("head_dim", [16, 80])
def test_as_they_come(dtype: torch.dtype, head_dim: int) -> None:
    """From views of one merged projection."""
    layer, slots = pool(head_dim, dtype), [39, 0, 17, 8]
    merged = torch.randn(4, 2 * HEADS + 4, head_dim).to(dtype)
    k, v = merged[:, 4 : 4 + HEADS], merged[:, 4 + HEADS :]
    kv_write(k, v, layer, torch.tensor(slots))
    assert torch.equal(at_slots(layer.tensors["k"], slots), k)
    assert torch.equal(at_slots(layer.tensors["v"], slots), v)
    assert written(layer.tensors["k"]) == written(layer.tensors["v"]) == 4


def test_padding_and_no_tokens_store_nothing() -> None:
    layer = pool(16, torch.float32)
    x = torch.randn(3, HEADS, 16)
    kv_write(x, x, layer, torch.tensor([-1, 9, -1]))
    kv_write(x[:0], x[:0], layer, torch.empty(0, dtype=torch.int64))
    assert written(layer.tensors["k"]) == written(layer.tensors["v"]) == 1
    assert torch.equal(at_slots(layer.tensors["v"], [9])[0], x[1])


def numbers(name: str, dtype: torch.dtype) -> Tensor:
    """All that can be stored, what lies between with its neighbours, and what is out of bounds."""
    encoding = encoding_of(name)
    codes = torch.arange(256).to(torch.uint8).view(encoding.dtype).float()
    codes = codes[codes.isfinite()].sort().values
    middles = (codes[1:] + codes[:-1]) / 2
    sides = [torch.nextafter(middles, torch.full_like(middles, x)) for x in (-1e9, 1e9)]
    special = [0.0, -0.0, 1e30, -1e30, float("inf"), float("-inf"), float("nan"), 1e-30, 70000.0]
    random = torch.randn(4000) * 2.0 ** torch.randint(-20, 18, (4000,))
    return torch.cat([codes, middles, *sides, torch.tensor(special), random]).to(dtype)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_encoded_bytes(dtype: torch.dtype, name: str, scaled: bool) -> None:
    encoding, width = encoding_of(name), 16
    every = numbers(name, dtype)
    tokens = -(-len(every) // (HEADS * width))
    k = torch.nn.functional.pad(every, (0, tokens * HEADS * width - len(every)))
    k = k.view(tokens, HEADS, width)
    scales = KvScales(torch.tensor([0.37, 1.0, 0.0031]), torch.tensor([2.1, 0.77, 13.0]))
    layer = encoded_pool(tokens, encoding)._replace(scales=scales if scaled else None)
    v = k.flip(0)
    kv_write(k, v, layer, torch.arange(tokens))
    for part, x, scale_K in (("k", k, scales.k_K), ("v", v, scales.v_K)):
        want = as_codes(store(x, scale_K if scaled else None, encoding))
        assert torch.equal(at_slots(layer.tensors[part], list(range(tokens))), want)


def encoded_pool(tokens: int, encoding: KvEncoding) -> KvLayer:
    shape = (-(-tokens // SIZE), HEADS, SIZE, 16)
    tensors = {part: torch.zeros(shape, dtype=encoding.dtype) for part in "kv"}
    return KvLayer(tensors, 1.0, encoding=encoding)


def test_blocks_beyond_32_bits() -> None:
    """A stride between blocks that is larger than the pool: what wraps around lands elsewhere."""
    stride = 2**31 // 2
    room = torch.empty(stride * 4, dtype=torch.float16)
    shape, strides = (BLOCKS - 1, HEADS, SIZE, 16), (stride, SIZE * 16, 16, 1)
    k, v = (room.as_strided(shape, strides, offset) for offset in (0, 1024))
    x = torch.randn(2, HEADS, 16).half()
    kv_write(x, x + 1, KvLayer({"k": k, "v": v}, 1.0), torch.tensor([31, 4]))
    assert torch.equal(at_slots(k, [31, 4]), x)
    assert torch.equal(at_slots(v, [31, 4]), x + 1)


@pytest.mark.parametrize("name", NAMES)
def test_known_encodings_are_served(name: str) -> None:
    assert encoding_reasons(encoding_of(name)) == []


def test_unknown_encodings_are_refused() -> None:
    (reason,) = encoding_reasons(encoding_of("e4m3")._replace(limit=240.0))
    assert "448" in reason and "240" in reason
    (reason,) = encoding_reasons(KvEncoding("half", torch.float16, 65504.0))
    assert "float16" in reason
