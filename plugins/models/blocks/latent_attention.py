"""Latent attention in its absorbed form: all queries read one key per token, and values of it.

The product that would make each head's keys of the latent vectors is applied to the queries, and
the one that would make its values to what attention returns.

Shape suffixes: T tokens of the step, N heads, H entries that are stored of a token, R those of its
latent vector, P entries of a query or key that are not rotated, V entries of a value, W rotated
pairs, D model width.
"""

import torch
from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Attend
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.shape import DecoderShape

EPS = 1e-6
"""Of the norms inside, whatever the config says of the others."""


class LatentAttention:
    """One layer's attention."""

    def __init__(
        self, layer: int, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        assert shape.latent is not None
        prefix, latent, heads = f"model.layers.{layer}.self_attn", shape.latent, shape.num_heads
        self._layer, self._ops, self._latent = layer, ops, latent
        self._queries = LatentQueries(prefix, shape, ops, load)
        self._norm_R = load.vector(f"{prefix}.kv_a_layernorm.weight", latent.rank)
        rows = heads * (latent.plain + latent.value)
        both = load.matrix(f"{prefix}.kv_b_proj.weight", rows, latent.rank)
        both = both.view(heads, -1, latent.rank)
        self._keys_NPR = both[:, : latent.plain]
        self._values_NRV = both[:, latent.plain :].transpose(1, 2)
        width = heads * latent.value
        self._output = load.columns(f"{prefix}.o_proj", shape.hidden_size, width, shape.output_bias)

    def __call__(self, x_TD: Tensor, cos_TW: Tensor, sin_TW: Tensor, attend: Attend) -> Tensor:
        latent = self._latent
        q_TNX, stored_TH = self._queries(x_TD)
        q_TNP, q_rotated = torch.split(q_TNX, [latent.plain, latent.rotated], -1)
        k_T1R, k_rotated = torch.split(stored_TH.unsqueeze(1), [latent.rank, latent.rotated], -1)
        q_rotated, k_rotated = self._rotate(q_rotated, k_rotated, cos_TW, sin_TW)
        q_TNR = torch.bmm(q_TNP.transpose(0, 1), self._keys_NPR).transpose(0, 1)
        q_TNH = torch.cat([q_TNR, q_rotated], -1)
        k_T1H = torch.cat([self._ops.rms_norm(k_T1R, self._norm_R, EPS), k_rotated], -1)
        out_TNR = attend(self._layer, q_TNH, k_T1H, k_T1H[..., : latent.rank])
        out_NTV = torch.bmm(out_TNR.transpose(0, 1), self._values_NRV)
        return self._ops.linear(out_NTV.transpose(0, 1).flatten(1), self._output)

    def _rotate(
        self, q_TNW: Tensor, k_T1W: Tensor, cos_TW: Tensor, sin_TW: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self._latent.interleaved:
            q_TNW, k_T1W = _halves(q_TNW), _halves(k_T1W)
        return self._ops.rope(q_TNW, k_T1W, cos_TW, sin_TW)


class LatentQueries:
    """The products of the hidden states: queries, and what is to be stored."""

    def __init__(
        self, prefix: str, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        assert shape.latent is not None
        rank, stored = shape.latent.query_rank, shape.latent.stored
        self._head = shape.latent.plain + shape.latent.rotated
        self._ops, self._rank = ops, rank
        width = shape.num_heads * self._head
        self._widths = [width if rank is None else rank, stored]
        names = ("q_proj" if rank is None else "q_a_proj", "kv_a_proj_with_mqa")
        outputs = dict(zip(names, self._widths, strict=True))
        self._merged = load.rows(prefix, outputs, shape.hidden_size, shape.qkv_bias)
        if rank is not None:
            self._norm = load.vector(f"{prefix}.q_a_layernorm.weight", rank)
            self._second = load.rows(prefix, {"q_b_proj": width}, rank, bias=False)

    def __call__(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """(queries by head, what is to be stored), neither of them rotated."""
        q, stored_TH = torch.split(self._ops.linear(x_TD, self._merged), self._widths, -1)
        if self._rank is not None:
            q = self._ops.linear(self._ops.rms_norm(q, self._norm, EPS), self._second)
        return q.view(len(q), -1, self._head), stored_TH


def _halves(x: Tensor) -> Tensor:
    """Pairs that lie side by side in the order that `Rope` rotates; a copy."""
    return x.reshape(*x.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)
