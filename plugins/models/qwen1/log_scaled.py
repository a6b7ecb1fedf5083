"""Attention whose queries grow with the logarithm of their position, beyond the trained length.

Shape suffixes: T tokens of the step, N query heads, K key/value heads, H head size.
"""

from math import log

import torch
from torch import Tensor

from jackfield.core.api.kernel import Projected
from jackfield.core.api.latent import LatentProjected
from jackfield.core.api.model import Attend


def log_scales(positions_T: Tensor, trained: int) -> Tensor:
    """The logarithm of position plus one to the base `trained`, and never less than 1; float32."""
    logs_T = (positions_T + 1).double().log() / log(trained)
    return torch.where(positions_T >= trained, logs_T, 1.0).float()


class LogScaled:
    """Implements `Attend` for the queries of one step."""

    def __init__(self, attend: Attend, positions_T: Tensor, trained: int) -> None:
        self._attend = attend
        self._scales_T11 = log_scales(positions_T, trained)[:, None, None]

    def __call__(self, layer: int, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor) -> Tensor:
        return self._attend(layer, (q_TNH * self._scales_T11).to(q_TNH.dtype), k_TKH, v_TKH)

    def projected(self, layer: int, projected: Projected) -> Tensor:
        # Scaling commutes with rotation. Nobody else has the product.
        projected.qkv_TMH[:, : projected.num_heads].mul_(self._scales_T11)
        return self._attend.projected(layer, projected)

    def latent(self, layer: int, projected: LatentProjected) -> Tensor:
        raise AssertionError("Qwen1 has no latent attention")
