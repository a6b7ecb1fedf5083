"""Attention of plain torch on stored keys and values, against dense attention on what they say."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import KvSpec
from jackfield.plugins.kernels.torch_ops import attention_step
from jackfield.plugins.kernels.torch_ops.attention import TorchAttention
from jackfield.plugins.kernels.torch_ops.encoding import restore, store

Make = Callable[..., Any]
ENCODINGS = [
    KvEncoding("e4m3", torch.float8_e4m3fn, 448.0),
    KvEncoding("e5m2", torch.float8_e5m2, 57344.0),
    KvEncoding("int8", torch.int8, 127.0),
    KvEncoding("half", torch.bfloat16, 3e38),
]
SCALES = KvScales(torch.tensor([0.02, 0.5]), torch.tensor([0.125, 0.03]))


def as_stored(new_TKH: Tensor, scale_K: Tensor | None, encoding: KvEncoding) -> Tensor:
    return restore(store(new_TKH, scale_K, encoding), scale_K)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.name)
@pytest.mark.parametrize("scales", [None, SCALES], ids=["plain", "scaled"])
@pytest.mark.parametrize("together", [False, True])
def test_products_are_those_of_what_is_stored(
    make_scene: Make,
    monkeypatch: pytest.MonkeyPatch,
    encoding: KvEncoding,
    scales: KvScales | None,
    together: bool,
) -> None:
    monkeypatch.setattr(attention_step, "LARGE", 0)
    scene = make_scene([300, 40, 70, 90], [1, 1, 70, 20], encoding=encoding, together=together)
    out = scene.run(TorchAttention(), scales)
    scale_K, scale_V = scales or (None, None)
    scene.keys = [as_stored(keys, scale_K, encoding) for keys in scene.keys]
    scene.values = [as_stored(values, scale_V, encoding) for values in scene.values]
    torch.testing.assert_close(out.double(), scene.reference(), atol=5e-6, rtol=1e-5)


def test_a_model_in_a_half_type_gets_its_own_type_back(make_scene: Make) -> None:
    encoding = ENCODINGS[0]
    scene = make_scene([90, 40], [1, 40], dtype=torch.bfloat16, encoding=encoding)
    out = scene.run(TorchAttention(), SCALES)
    assert out.dtype is torch.bfloat16
    scene.keys = [as_stored(keys, SCALES.k_K, encoding) for keys in scene.keys]
    scene.values = [as_stored(values, SCALES.v_K, encoding) for values in scene.values]
    torch.testing.assert_close(out.double(), scene.reference(), atol=0.02, rtol=0.01)


def test_the_layout_has_the_type_of_the_encoding() -> None:
    spec = KvSpec(4, 2, 64, torch.float32, 16, encoding=ENCODINGS[0])
    layout = TorchAttention().layout(spec)
    assert {part.dtype for part in layout.tensors} == {torch.float8_e4m3fn}
    assert layout.bytes_per_block == 2 * 16 * 2 * 64
