"""Attention of one step, as the model's argument."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from jackfield.core.api import AttnBatch, AttnStep, KvLayer, Operations, Projected


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
        return self._attend(q_TNH, where, step, v_TKH.shape[-1])

    def projected(self, layer: int, projected: Projected) -> Tensor:
        fused = self._operations.qk_norm_rope_write
        if fused is None:
            return self(layer, *rotated(self._operations, projected))
        step, where = self._steps[self._group_of[layer]], self._layers[layer]
        q_TNH = fused(projected, where, self._slots_T)
        return self._attend(q_TNH, where, step, q_TNH.shape[-1])

    def _attend(self, q_TNH: Tensor, where: KvLayer, step: AttnStep, value_dim: int) -> Tensor:
        shape = (*q_TNH.shape[:2], value_dim)
        out_TNH = torch.empty(shape, dtype=q_TNH.dtype, device=q_TNH.device)
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
