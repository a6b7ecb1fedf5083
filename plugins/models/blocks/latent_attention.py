"""Latent attention: what is stored of a token is one vector for all heads, and a rotated part.

Shape suffixes: T tokens of the step, N heads, H entries that are stored of a token, R those of its
shared vector, P entries of a query or key that are not rotated, Q all of them, V entries of a
value, X a value and P beside each other, W rotated pairs, D model width.
"""

import torch
from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.core.api.latent import LatentHeads, LatentProjected
from jackfield.core.api.model import Attend
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.shape import DecoderShape
from jackfield.plugins.models.blocks.share import Share

EPS = 1e-6
"""Of the norms inside, whatever the config says of the others."""


class LatentAttention:
    """One layer's attention; this rank's heads when weights are divided. What all heads share is
    made, and stored, by every rank."""

    def __init__(
        self, layer: int, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        assert shape.latent is not None
        prefix, latent = f"model.layers.{layer}.self_attn", shape.latent
        self._layer, self._ops, self._interleaved = layer, ops, latent.interleaved
        self._queries = LatentQueries(prefix, shape, ops, load)
        self._norm_R = load.vector(f"{prefix}.kv_a_layernorm.weight", latent.rank)
        rows = Share.heads(shape.num_heads, latent.plain + latent.value, load.shard)
        both = load.row_matrix(f"{prefix}.kv_b_proj.weight", rows, latent.rank)
        sizes = [latent.plain, latent.value]
        heads = len(load.shard.part(shape.num_heads))
        keys_NPR, values_NVR = torch.split(both.view(heads, -1, latent.rank), sizes, 1)
        self._heads = LatentHeads.of(torch.cat([values_NVR, keys_NPR], 1), latent.value)
        made, hidden = Share.heads(shape.num_heads, latent.value, load.shard), shape.hidden_size
        self._output = load.columns(f"{prefix}.o_proj", hidden, made, shape.output_bias)

    def __call__(self, x_TD: Tensor, cos_TW: Tensor, sin_TW: Tensor, attend: Attend) -> Tensor:
        q_TNQ, stored_TH = self._queries(x_TD)
        projected = LatentProjected(
            q_TNQ, stored_TH, self._norm_R, EPS, cos_TW, sin_TW, self._interleaved, self._heads
        )
        out_TNV = attend.latent(self._layer, projected)
        return self._ops.linear(out_TNV.flatten(1), self._output)


class LatentQueries:
    """The products of the hidden states: queries, and what is to be stored."""

    def __init__(
        self, prefix: str, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        assert shape.latent is not None
        rank, stored = shape.latent.query_rank, shape.latent.stored
        self._head = shape.latent.plain + shape.latent.rotated
        self._ops, self._rank = ops, rank
        queries = Share.heads(shape.num_heads, self._head, load.shard)
        name, first = ("q_proj", queries) if rank is None else ("q_a_proj", Share.whole(rank))
        self._widths = [len(first.part), stored]
        outputs = {name: first, "kv_a_proj_with_mqa": Share.whole(stored)}
        self._merged = load.rows(prefix, outputs, shape.hidden_size, shape.qkv_bias)
        if rank is not None:
            self._norm = load.vector(f"{prefix}.q_a_layernorm.weight", rank)
            self._second = load.rows(prefix, {"q_b_proj": queries}, rank, bias=False)

    def __call__(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """(queries by head, what is to be stored), neither of them rotated."""
        q, stored_TH = torch.split(self._ops.linear(x_TD, self._merged), self._widths, -1)
        if self._rank is not None:
            q = self._ops.linear(self._ops.rms_norm(q, self._norm, EPS), self._second)
        return q.view(len(q), -1, self._head), stored_TH
