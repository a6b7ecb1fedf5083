"""Rotating queries, and norming, rotating and storing latents, against one operation after the
other."""

from typing import Any

import pytest
import torch

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import AttnBatch, KvLayer, KvSpec
from jackfield.core.api.latent import LatentHeads, LatentProjected, LatentSizes
from jackfield.core.engine.attend import latent_rotated
from jackfield.plugins.kernels.torch_ops.encoding import store
from jackfield.plugins.kernels.torch_ops.rms_norm import TorchRmsNorm
from jackfield.plugins.kernels.torch_ops.rope import TorchRope
from jackfield.plugins.kernels.triton.attention import TritonAttention

pytestmark = pytest.mark.few_combinations
E4M3 = KvEncoding("e4m3", torch.float8_e4m3fn, 448.0)
BLOCK = 8


class Plain:
    """The operations that `latent_rotated` needs."""

    rms_norm, rope = TorchRmsNorm(), TorchRope()


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("sizes", [
    LatentSizes(32, 16, 32, 16), LatentSizes(48, 96, 16, 16), LatentSizes(512, 64, 128, 128),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("encoding", [None, E4M3])
@pytest.mark.parametrize("heads", [1, 11])
def test_it_does_what_single_operations_do(
    config: Any,
    device: torch.device,
    dtype: torch.dtype,
    sizes: LatentSizes,
    interleaved: bool,
    encoding: KvEncoding | None,
    heads: int,
) -> None:
    attention = TritonAttention(config)
    spec = KvSpec(heads, 1, sizes.stored, dtype, BLOCK, encoding=encoding, latent=sizes)
    (tensor,) = attention.layout(spec).tensors
    scales = None if encoding is None else KvScales(torch.tensor([0.03]), torch.ones(1))
    layer = KvLayer(
        {"latent": torch.zeros(5, *tensor.shape, dtype=tensor.dtype)}, 1.0, None, scales, encoding
    )
    merged = torch.randn(6, heads * sizes.query + sizes.stored).to(dtype)
    q, stored_TH = torch.split(merged, [heads * sizes.query, sizes.stored], 1)
    slots_T = torch.tensor([9, 3, -1, 39, 0, 17])
    angles = torch.randn(6, sizes.rotated // 2)
    expander = torch.randn(heads, sizes.value + sizes.plain, sizes.rank).to(dtype)
    projected = LatentProjected(
        q.view(6, heads, sizes.query), stored_TH, torch.rand(sizes.rank).to(dtype), 1e-6,
        angles.cos(), angles.sin(), interleaved, LatentHeads.of(expander, sizes.value),
    )  # fmt: skip
    plain: Any = Plain()
    copied = merged.clone().split([heads * sizes.query, sizes.stored], 1)
    wanted_q, wanted_stored = latent_rotated(
        plain, projected._replace(q_TNQ=copied[0].view_as(projected.q_TNQ), stored_TH=copied[1])
    )
    step = attention.prepare(AttnBatch(slots_T, slots_T, slots_T, slots_T, 6, 1, 1, ()))
    found = attention.write_latent(projected, layer, step)
    close = {"atol": 1e-6, "rtol": torch.finfo(dtype).eps}
    torch.testing.assert_close(found, wanted_q, **close)
    pool = layer.tensors["latent"][:, 0].flatten(0, 1)
    kept = slots_T >= 0
    written = pool.view(torch.uint8 if encoding else dtype)[slots_T[kept]]
    if encoding is None:
        torch.testing.assert_close(written, wanted_stored[kept, 0], **close)
    else:
        codes = store(wanted_stored, scales.k_K, encoding).view(torch.uint8)[kept, 0]
        differ = (written.int() - codes.int()).abs()
        assert int(differ.max()) <= 1 and float((differ > 0).float().mean()) < 0.01
    others = torch.ones(len(pool), dtype=torch.bool)
    others[slots_T[kept]] = False
    assert not pool[others].float().any()
