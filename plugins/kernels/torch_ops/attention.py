"""Paged attention in plain torch: pages are gathered, then dense products do the work.

Shape suffixes beside those of the contract: G query heads of one key/value head, L positions that
are gathered, Q tokens of one slice, P slots of the pool times heads.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from jackfield.core.api.kernel import (
    AttnBatch,
    AttnStep,
    BatchLimits,
    KvLayer,
    KvLayout,
    KvSpec,
    KvTensor,
)
from jackfield.plugins.kernels.torch_ops.attention_step import Decodes, Geometry, Prefill, TorchStep


class TorchAttention:
    """Decodes as one padded product with the query group as rows, prefills slice by slice."""

    def unsupported(self, spec: KvSpec, device: torch.device) -> list[str]:
        return []

    def layout(self, spec: KvSpec) -> KvLayout:
        shape = (spec.num_kv_heads, spec.block_size, spec.head_dim)
        return KvLayout((KvTensor("k", shape, spec.dtype), KvTensor("v", shape, spec.dtype)))

    def workspace(self, limits: BatchLimits) -> int:
        return 0

    def capturable(self, max_rows: int, max_len: int) -> bool:
        return False

    def prepare(self, batch: AttnBatch, into: AttnStep | None) -> AttnStep:
        return TorchStep(batch)

    def write(self, k_TKH: Tensor, v_TKH: Tensor, layer: KvLayer, step: AttnStep) -> None:
        rows = step.plan(_geometry(layer)).written_P
        _rows(layer, "k").index_copy_(0, rows, k_TKH.reshape(-1, k_TKH.shape[-1]))
        _rows(layer, "v").index_copy_(0, rows, v_TKH.reshape(-1, v_TKH.shape[-1]))

    def forward(self, q_TNH: Tensor, layer: KvLayer, step: AttnStep, out_TNH: Tensor) -> Tensor:
        plan = step.plan(_geometry(layer))
        if plan.decodes is not None:
            _decode(q_TNH, layer, plan.decodes, out_TNH)
        for prefill in plan.prefills:
            _prefill(q_TNH, layer, prefill, out_TNH)
        return out_TNH


def _geometry(layer: KvLayer) -> Geometry:
    k = layer.tensors["k"]
    blocks, heads, size, head_dim = k.shape
    return Geometry(blocks, heads, size, head_dim, k.dtype, layer.window)


def _rows(layer: KvLayer, name: str) -> Tensor:
    tensor = layer.tensors[name]
    return tensor.view(-1, tensor.shape[-1])


def _gather(layer: KvLayer, name: str, rows_P: Tensor, room_PH: Tensor | None = None) -> Tensor:
    return torch.index_select(_rows(layer, name), 0, rows_P, out=room_PH)


def _decode(q_TNH: Tensor, layer: KvLayer, decodes: Decodes, out_TNH: Tensor) -> None:
    # Products of half types would round the scores before the softmax.
    exact = torch.promote_types(q_TNH.dtype, torch.float32)
    heads, length = decodes.heads, decodes.length
    count, num_heads, head_dim = decodes.slices, *q_TNH.shape[1:]
    shape = (count * heads, length, head_dim)
    k = _gather(layer, "k", decodes.rows_P, decodes.room[0]).view(shape).to(exact)
    v = _gather(layer, "v", decodes.rows_P, decodes.room[1]).view(shape).to(exact)
    q = q_TNH[:count].reshape(count * heads, num_heads // heads, head_dim).to(exact)
    hidden = decodes.hidden.to(exact)
    scores = torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=layer.scale)
    out = torch.bmm(scores.softmax(-1), v)
    out_TNH[:count].copy_(out.view(count, num_heads, head_dim))


def _prefill(q_TNH: Tensor, layer: KvLayer, prefill: Prefill, out_TNH: Tensor) -> None:
    shape = (prefill.heads, prefill.length, q_TNH.shape[2])
    k_KLH = _gather(layer, "k", prefill.rows_P).view(shape)
    v_KLH = _gather(layer, "v", prefill.rows_P).view(shape)
    q_NQH = q_TNH[prefill.begin : prefill.end].transpose(0, 1)
    out_1NQH = scaled_dot_product_attention(
        q_NQH.unsqueeze(0),
        k_KLH.unsqueeze(0),
        v_KLH.unsqueeze(0),
        attn_mask=prefill.seen_QL,
        is_causal=prefill.seen_QL is None,
        scale=layer.scale,
        enable_gqa=q_NQH.shape[0] != k_KLH.shape[0],
    )
    out_TNH[prefill.begin : prefill.end].copy_(out_1NQH[0].transpose(0, 1))
