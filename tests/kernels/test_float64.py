"""Plain torch serves float64, so that a whole model can be checked without rounding."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from jackfield.core.api.scheduler import PolicyConfig
from jackfield.plugins.kernels.torch_ops import TorchKernels

OPS = TorchKernels(PolicyConfig()).operations()


@pytest.mark.parametrize("window", [None, 20])
def test_attention(make_scene: Callable[..., Any], window: int | None) -> None:
    scene = make_scene([30, 200, 90, 64], [1, 1, 20, 64], dtype=torch.float64, window=window)
    torch.testing.assert_close(
        scene.run(OPS["attention"]), scene.reference(), atol=1e-12, rtol=1e-12
    )


def test_norm_is_not_rounded() -> None:
    x, weight = torch.randn(3, 50).double(), torch.randn(50).double()
    truth = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight
    out = OPS["rms_norm"](x, weight, 1e-6)
    torch.testing.assert_close(out, truth, atol=1e-13, rtol=1e-13)


def test_rope_is_not_rounded() -> None:
    q, k = torch.randn(4, 2, 8).double(), torch.randn(4, 1, 8).double()
    angles = torch.rand(4, 4)
    low, high = q.chunk(2, -1)
    c, s = angles.cos().double()[:, None], angles.sin().double()[:, None]
    truth = torch.cat([low * c - high * s, high * c + low * s], -1)
    out, _ = OPS["rope"](q, k, angles.cos(), angles.sin())
    torch.testing.assert_close(out, truth, atol=1e-14, rtol=1e-14)
