from typing import Any

import pytest
import torch

from jackfield.core.api import KvSpec, LatentSizes
from jackfield.plugins.kernels.triton.attention import TritonAttention

SIZES = LatentSizes(rank=512, rotated=64, plain=128, value=128)
SPEC = KvSpec(128, 1, 576, torch.float16, 16, latent=SIZES)


def test_what_deepseek_has_is_served(config: Any, device: torch.device) -> None:
    attention = TritonAttention(config)
    assert attention.unsupported(SPEC, device) == []
    assert attention.unsupported(SPEC._replace(num_heads=16), device) == []


@pytest.mark.parametrize(
    ("changes", "sizes", "why"),
    [
        ({"num_kv_heads": 2}, {}, "one key/value head of 576 entries, not 2 of 576"),
        ({"head_dim": 512}, {}, "not 1 of 512"),
        ({"window": 100}, {}, "without a window"),
        ({"block_size": 24}, {}, "the block size must be a power of two"),
        ({"head_dim": 520}, {"rotated": 8}, "`rotated` must be a multiple of 16 up to 128, not 8"),
        ({"head_dim": 1088}, {"rank": 1024}, "`rank` must be a multiple of 16 up to 512"),
        ({}, {"plain": 100}, "`plain` must be a multiple of 16 up to 128, not 100"),
        ({}, {"value": 256}, "`value` must be a multiple of 16 up to 128, not 256"),
    ],
)
def test_what_is_refused_for_one_reason(
    config: Any, device: torch.device, changes: Any, sizes: Any, why: str
) -> None:
    spec = SPEC._replace(**changes, latent=SIZES._replace(**sizes))
    (reason,) = TritonAttention(config).unsupported(spec, device)
    assert why in reason
