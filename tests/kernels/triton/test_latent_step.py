"""Steps of latent attention in all their forms at once: decodes, prompts, and tokens of prompts
that are computed like decodes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from jackfield.core.api.kernel import KvLayer
from jackfield.core.api.latent import LatentHeads, LatentSizes
from jackfield.plugins.kernels.triton.attention import TritonAttention

# The interpreter runs loops over bounds that the device knows.
pytestmark = [
    pytest.mark.few_combinations,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]
SIZES = LatentSizes(rank=32, rotated=16, plain=32, value=16)
TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@pytest.fixture
def on_device() -> None:
    """Scenes are made on the host."""


@pytest.mark.parametrize(
    ("lens", "counts"),
    [
        ([3, 40, 1], [1, 1, 1]),
        ([30, 1100, 50, 1040], [1, 3, 20, 2]),
        ([1100, 9], [4, 9]),
    ],
)
def test_every_token_is_computed_once(
    make_scene: Callable[..., Any],
    config: Any,
    device: torch.device,
    dtype: torch.dtype,
    lens: list[int],
    counts: list[int],
) -> None:
    scene = make_scene(
        lens, counts, heads=(2, 1), head_dim=SIZES.stored, dtype=dtype, block_size=16
    )
    spec = scene.spec._replace(latent=SIZES)
    attention = TritonAttention(config)
    tensor = attention.layout(spec).tensors[0]
    pool = torch.full((scene.num_blocks, *tensor.shape), float("nan"), dtype=dtype, device=device)
    layer = KvLayer({tensor.name: pool}, scene.scale)
    batch = scene.batch()
    moved = batch._replace(
        **{
            name: getattr(batch, name).to(device)
            for name in ("query_start_S1", "lens_S", "block_tables_SB", "slots_T")
        }
    )
    for index, (keys, count) in enumerate(zip(scene.keys, counts, strict=True)):
        at = torch.arange(len(keys) - count)
        blocks = scene.tables[index, at // 16].long()
        pool[blocks.to(device), 0, (at % 16).to(device)] = keys[: len(at), 0].to(device)
    new = [keys[len(keys) - count :] for keys, count in zip(scene.keys, counts, strict=True)]
    merged = torch.randn(2, SIZES.value + SIZES.plain, SIZES.rank) / SIZES.rank**0.5
    heads = LatentHeads.of(merged.to(dtype).to(device), SIZES.value)
    stored = torch.cat(new).to(device)
    q_TNQ = torch.randn(len(stored), 2, SIZES.query).to(dtype)
    out = torch.full((len(q_TNQ), 2, SIZES.value), float("nan"), dtype=dtype, device=device)
    step = attention.prepare(moved)
    attention.write(stored, stored[..., : SIZES.rank], layer, step)
    attention.forward_latent(q_TNQ.to(device), heads, layer, step, out)
    exact = LatentHeads.of(merged.to(dtype).double(), SIZES.value)
    expanded = [exact.expanded(keys[:, 0].double()) for keys in scene.keys]
    scene.spec = scene.spec._replace(num_kv_heads=2)
    scene.q = list(q_TNQ.split(counts))
    scene.keys, scene.values = (list(part) for part in zip(*expanded, strict=True))
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(
        out.cpu().double(), scene.reference(), atol=tolerance, rtol=tolerance
    )
