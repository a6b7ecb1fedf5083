"""How large keys and values are: one pass of the model over a fixed sequence of tokens.

Shape suffixes: T tokens, N query heads, K key/value heads, H head size, L layers.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from jackfield.core.api import (
    LatentProjected,
    LayerGroup,
    Model,
    ModelInputs,
    ModelSpec,
    Operations,
    Projected,
)
from jackfield.core.engine.attend import latent_rotated, rotated

CALIBRATION_TOKENS = 512
GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, are spread evenly however many there are."""


class Peaks(NamedTuple):
    """The largest magnitudes of one layer, float32 per key/value head."""

    k_K: Tensor
    v_K: Tensor


def measure_peaks(
    model: Model, operations: Operations, spec: ModelSpec, device: torch.device
) -> Mapping[int, Peaks]:
    """By layer. Depends on the model alone: neither on configuration nor on traffic."""
    ids_T = calibration_ids(spec.vocab_size, min(CALIBRATION_TOKENS, spec.max_positions))
    positions_T = torch.arange(len(ids_T))
    lens_T = torch.full_like(ids_T, len(ids_T)).to(device) if spec.uses_prompt_lens else None
    attention = _PlainAttention(operations, spec.groups, spec.softmax_scale)
    with torch.inference_mode():
        model.forward(ModelInputs(ids_T.to(device), positions_T.to(device), lens_T), attention)
    return attention.peaks


def calibration_ids(vocab_size: int, count: int) -> Tensor:
    """Ids from all over the vocabulary, the same at every start."""
    return (torch.arange(count, dtype=torch.float64) * GOLDEN % 1.0 * vocab_size).long()


class _PlainAttention:
    """Dense, unpaged attention as the model's argument; remembers peaks."""

    def __init__(
        self, operations: Operations, groups: Sequence[LayerGroup], scale: float
    ) -> None:
        self._operations = operations
        self.peaks: dict[int, Peaks] = {}
        self._windows = {layer: group.window for group in groups for layer in group.layers}
        self._scale = scale

    def __call__(self, layer: int, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor) -> Tensor:
        self.peaks[layer] = Peaks(_peak(k_TKH), _peak(v_TKH))
        return self._attend(layer, q_TNH, k_TKH, v_TKH)

    def _attend(self, layer: int, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor) -> Tensor:
        out_1NTH = scaled_dot_product_attention(
            _heads_first(q_TNH),
            _heads_first(k_TKH),
            _heads_first(v_TKH),
            attn_mask=_seen(len(q_TNH), self._windows[layer], q_TNH.device),
            scale=self._scale,
            enable_gqa=q_TNH.shape[1] != k_TKH.shape[1],
        )
        return out_1NTH[0].transpose(0, 1).to(q_TNH.dtype).contiguous()

    def projected(self, layer: int, projected: Projected) -> Tensor:
        return self(layer, *rotated(self._operations, projected))

    def latent(self, layer: int, projected: LatentProjected) -> Tensor:
        q_TNQ, stored_T1H = latent_rotated(self._operations, projected)
        rank = len(projected.norm_R)
        self.peaks[layer] = Peaks(_peak(stored_T1H), _peak(stored_T1H[..., :rank]))
        return self._attend(layer, q_TNQ, *projected.heads.expanded(stored_T1H[:, 0]))


def _heads_first(x_TNH: Tensor) -> Tensor:
    return x_TNH.float().transpose(0, 1).unsqueeze(0)


def _peak(x_TKH: Tensor) -> Tensor:
    return x_TKH.float().abs().amax((0, 2))


def _seen(count: int, window: int | None, device: torch.device) -> Tensor:
    key = torch.arange(count, device=device)
    query = key.unsqueeze(1)
    seen = key <= query
    return seen if window is None else seen & (key > query - window)
