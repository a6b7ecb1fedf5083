from typing import Any

import torch

from jackfield.core.api import KvSpec
from jackfield.plugins.kernels.triton.attention import TritonAttention


def test_latent_attention_is_refused_for_one_reason(config: Any, device: torch.device) -> None:
    spec = KvSpec(128, 1, 576, torch.float16, 16, value_dim=512)
    (reason,) = TritonAttention(config).unsupported(spec, device)
    assert "latent attention" in reason
