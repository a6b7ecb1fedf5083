"""Self-attention with one merged product for queries, keys and values."""

from torch import Tensor

from jackfield.core.api.kernel import HeadNorms, Operations, Projected
from jackfield.core.api.model import Attend
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.shape import DecoderShape
from jackfield.plugins.models.blocks.share import Share


def head_norms(prefix: str, shape: DecoderShape, load: LinearLoader) -> HeadNorms:
    """The weights of a layer's norms of queries and keys."""
    query_H = load.vector(f"{prefix}.q_norm.weight", shape.head_dim)
    key_H = load.vector(f"{prefix}.k_norm.weight", shape.head_dim)
    return HeadNorms(query_H, key_H, shape.norm_eps)


class Attention:
    """One layer's attention; this rank's heads when weights are divided."""

    def __init__(
        self, layer: int, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        prefix = f"model.layers.{layer}.self_attn"
        queries = Share.heads(shape.num_heads, shape.head_dim, load.shard)
        keys = Share.heads(shape.num_kv_heads, shape.head_dim, load.shard)
        outputs = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        self._layer = layer
        self._linear = ops.linear
        self._qkv = load.rows(prefix, outputs, shape.hidden_size, shape.qkv_bias)
        self._norms = head_norms(prefix, shape, load) if shape.qk_norm else None
        name, hidden = f"{prefix}.o_proj", shape.hidden_size
        self._output = load.columns(name, hidden, queries, shape.output_bias)
        self._num_heads = len(load.shard.part(shape.num_heads))
        self._num_kv_heads = len(load.shard.part(shape.num_kv_heads))
        heads = self._num_heads + 2 * self._num_kv_heads
        self._merged_shape = (-1, heads, shape.head_dim)

    def __call__(self, x_TD: Tensor, cos_TW: Tensor, sin_TW: Tensor, attend: Attend) -> Tensor:
        qkv_TMH = self._linear(x_TD, self._qkv).view(self._merged_shape)
        projected = Projected(
            qkv_TMH, self._num_heads, self._num_kv_heads, cos_TW, sin_TW, self._norms
        )
        out_TNH = attend.projected(self._layer, projected)
        return self._linear(out_TNH.flatten(1), self._output)
