"""Self-attention with one merged product for queries, keys and values."""

import torch
from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Attend
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.shape import DecoderShape


class QkNorm:
    """Norms of each head's query and key, before they are rotated."""

    def __init__(
        self, prefix: str, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        self._norm, self._eps = ops.rms_norm, shape.norm_eps
        self._query_H = load.vector(f"{prefix}.q_norm.weight", shape.head_dim)
        self._key_H = load.vector(f"{prefix}.k_norm.weight", shape.head_dim)

    def __call__(self, q_TNH: Tensor, k_TKH: Tensor) -> tuple[Tensor, Tensor]:
        query = self._norm(q_TNH, self._query_H, self._eps)
        return query, self._norm(k_TKH, self._key_H, self._eps)


class Attention:
    """One layer's attention; this rank's heads when weights are divided."""

    def __init__(
        self, layer: int, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        prefix = f"model.layers.{layer}.self_attn"
        width, kv_width = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        outputs = {"q_proj": width, "k_proj": kv_width, "v_proj": kv_width}
        self._layer = layer
        self._linear, self._rope = ops.linear, ops.rope
        self._qkv = load.rows(prefix, outputs, shape.hidden_size, shape.qkv_bias)
        self._norm = QkNorm(prefix, shape, ops, load) if shape.qk_norm else None
        self._output = load.columns(f"{prefix}.o_proj", shape.hidden_size, width, shape.output_bias)
        kv_heads = shape.num_kv_heads // load.shard.size
        self._heads = [shape.num_heads // load.shard.size, kv_heads, kv_heads]
        self._merged_shape = (-1, sum(self._heads), shape.head_dim)

    def __call__(self, x_TD: Tensor, cos_TW: Tensor, sin_TW: Tensor, attend: Attend) -> Tensor:
        qkv = self._linear(x_TD, self._qkv).view(self._merged_shape)
        q_TNH, k_TKH, v_TKH = torch.split(qkv, self._heads, dim=1)
        if self._norm is not None:
            q_TNH, k_TKH = self._norm(q_TNH, k_TKH)
        q_TNH, k_TKH = self._rope(q_TNH, k_TKH, cos_TW, sin_TW)
        out_TNH = attend(self._layer, q_TNH, k_TKH, v_TKH)
        return self._linear(out_TNH.flatten(1), self._output)
