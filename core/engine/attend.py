"""Attention of one step, as the model's argument."""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from jackfield.core.api import (
    AttnBatch,
    AttnStep,
    KvLayer,
    LatentAttentionKernel,
    LatentProjected,
    Operations,
    Projected,
)


class StepAttention:
    """Stores the step's keys and values and attends, layer by layer.

    group_of: layer -> index of its group.
    """

    def __init__(
        self,
        operations: Operations,
        layers: Sequence[KvLayer],
        group_of: Mapping[int, int],
        batch: AttnBatch,
    ) -> None:
        self._operations = operations
        self._kernel = operations.attention
        self._layers = layers
        self._group_of = group_of
        self._slots_T = batch.slots_T
        groups = range(max(group_of.values()) + 1)
        self._steps: list[AttnStep] = [self._kernel.prepare(batch) for _ in groups]

    def __call__(self, layer: int, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor) -> Tensor:
        step, where = self._steps[self._group_of[layer]], self._layers[layer]
        self._kernel.write(k_TKH, v_TKH, where, step)
        return self._attend(q_TNH, where, step)

    def projected(self, layer: int, projected: Projected) -> Tensor:
        fused = self._operations.qk_norm_rope_write
        if fused is None:
            return self(layer, *rotated(self._operations, projected))
        step, where = self._steps[self._group_of[layer]], self._layers[layer]
        q_TNH = fused(projected, where, self._slots_T)
        return self._attend(q_TNH, where, step)

    def latent(self, layer: int, projected: LatentProjected) -> Tensor:
        step, where = self._steps[self._group_of[layer]], self._layers[layer]
        kernel, heads = cast(LatentAttentionKernel, self._kernel), projected.heads
        _, rank, value = heads.values_NRV.shape
        q_TNQ = kernel.write_latent(projected, where, step)
        if q_TNQ is None:
            q_TNQ, stored_T1H = latent_rotated(self._operations, projected)
            self._kernel.write(stored_T1H, stored_T1H[..., :rank], where, step)
        out_TNV = q_TNQ.new_empty(*q_TNQ.shape[:2], value)
        return kernel.forward_latent(q_TNQ, heads, where, step, out_TNV)

    def _attend(self, q_TNH: Tensor, where: KvLayer, step: AttnStep) -> Tensor:
        out_TNH = torch.empty(q_TNH.shape, dtype=q_TNH.dtype, device=q_TNH.device)
        return self._kernel.forward(q_TNH, where, step, out_TNH)


def rotated(operations: Operations, projected: Projected) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, the first two normed and rotated, by an operation for each."""
    heads = [projected.num_heads, projected.num_kv_heads, projected.num_kv_heads]
    q_TNH, k_TKH, v_TKH = torch.split(projected.qkv_TMH, heads, dim=1)
    norms, norm = projected.norms, operations.rms_norm
    if norms is not None:
        q_TNH = norm(q_TNH, norms.query_H, norms.eps)
        k_TKH = norm(k_TKH, norms.key_H, norms.eps)
    q_TNH, k_TKH = operations.rope(q_TNH, k_TKH, projected.cos_TW, projected.sin_TW)
    return q_TNH, k_TKH, v_TKH


def latent_rotated(operations: Operations, projected: LatentProjected) -> tuple[Tensor, Tensor]:
    """Queries, rotated, and what is to be stored as one key of each token."""
    rank = len(projected.norm_R)
    plain = projected.heads.keys_NPR.shape[1]
    q_TNQ, stored_T1H = projected.q_TNQ, projected.stored_TH.unsqueeze(1)
    q_TNW, k_T1W = q_TNQ[..., plain:], stored_T1H[..., rank:]
    if projected.interleaved:
        q_TNW, k_T1W = _halves(q_TNW), _halves(k_T1W)
    q_TNW, k_T1W = operations.rope(q_TNW, k_T1W, projected.cos_TW, projected.sin_TW)
    normed_T1R = operations.rms_norm(stored_T1H[..., :rank], projected.norm_R, projected.eps)
    return torch.cat([q_TNQ[..., :plain], q_TNW], -1), torch.cat([normed_T1R, k_T1W], -1)


def _halves(x: Tensor) -> Tensor:
    """Pairs that lie side by side in the order that `Rope` rotates; a copy."""
    return x.reshape(*x.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)
