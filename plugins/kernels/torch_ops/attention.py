"""Paged attention in plain torch: pages are read where they lie or gathered, then dense products.

Shape suffixes beside those of the contract: G query heads of one key/value head, L positions that
are read, Q tokens of one slice, P slots of the pool, or of single heads in it.
"""

from collections.abc import Sequence

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
from jackfield.core.api.latent import LatentHeads, LatentProjected
from jackfield.plugins.kernels.torch_ops.attention_step import (
    Gathered,
    Geometry,
    Prefill,
    TorchStep,
    Viewed,
)
from jackfield.plugins.kernels.torch_ops.encoding import restore, store
from jackfield.plugins.kernels.torch_ops.latent import LATENT, latent_prefill


class TorchAttention:
    """Decodes as one padded product or slice by slice, with the query group as rows; prefills
    slice by slice."""

    def unsupported(self, spec: KvSpec, device: torch.device) -> list[str]:
        return []

    def layout(self, spec: KvSpec) -> KvLayout:
        dtype = spec.dtype if spec.encoding is None else spec.encoding.dtype
        shape = (spec.block_size, spec.num_kv_heads, spec.head_dim)
        names = ("k", "v") if spec.latent is None else (LATENT,)
        return KvLayout(tuple(KvTensor(name, shape, dtype) for name in names))

    def workspace(self, limits: BatchLimits) -> int:
        return 0

    def capturable(self, max_rows: int, max_len: int) -> bool:
        return False

    def prepare(self, batch: AttnBatch) -> AttnStep:
        return TorchStep(batch)

    def write(self, k_TKH: Tensor, v_TKH: Tensor, layer: KvLayer, step: AttnStep) -> None:
        for name, new_TKH in zip(layer.tensors, (k_TKH, v_TKH), strict=False):
            if layer.encoding is not None:
                new_TKH = _plain(store(new_TKH, _scale(layer, name), layer.encoding))
            _slots(layer, name).index_copy_(0, step.slots_T, new_TKH)

    def forward(self, q_TNH: Tensor, layer: KvLayer, step: AttnStep, out_TNH: Tensor) -> Tensor:
        plan = step.plan(_geometry(layer))
        for gathered in plan.gathered:
            _decode_gathered(q_TNH, layer, gathered, out_TNH)
        if plan.views:
            _decode_views(q_TNH, layer, plan.views, out_TNH)
        for prefill in plan.prefills:
            _prefill(q_TNH, layer, prefill, out_TNH)
        return out_TNH

    def write_latent(self, projected: LatentProjected, layer: KvLayer, step: AttnStep) -> None:
        return None

    def forward_latent(
        self, q_TNQ: Tensor, heads: LatentHeads, layer: KvLayer, step: AttnStep, out_TNV: Tensor
    ) -> Tensor:
        """Absorbed, for decodes and prompts."""
        q_TNH = heads.absorbed(q_TNQ)
        out_TNR = q_TNH.new_empty(*q_TNH.shape[:2], heads.merged_NXR.shape[2])
        return out_TNV.copy_(heads.results(self.forward(q_TNH, layer, step, out_TNR)))


def _geometry(layer: KvLayer) -> Geometry:
    keys = _plain(next(iter(layer.tensors.values())))
    blocks, size, heads, head_dim = keys.shape
    tensors = len(layer.tensors)
    return Geometry(blocks, size, heads, head_dim, keys.dtype, layer.window, tensors)


def _plain(tensor: Tensor) -> Tensor:
    """Types of one byte as bytes: those of eight-bit floats can hardly be indexed."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


def _slots(layer: KvLayer, name: str) -> Tensor:
    return _plain(layer.tensors[name]).flatten(0, 1)


def _scale(layer: KvLayer, name: str) -> Tensor | None:
    if layer.scales is None:
        return None
    return layer.scales.v_K if name == "v" else layer.scales.k_K


def _restored(layer: KvLayer, name: str, stored_KLH: Tensor) -> Tensor:
    """Keys or values with any axes in front, as they enter the products."""
    if layer.encoding is None:
        return stored_KLH
    return restore(stored_KLH.view(layer.encoding.dtype), _scale(layer, name), heads_axis=-3)


def _read(layer: KvLayer, name: str, where: slice | Tensor) -> Tensor:
    slots_PKH = _slots(layer, name)
    found_LKH = slots_PKH[where] if isinstance(where, slice) else slots_PKH.index_select(0, where)
    return _restored(layer, name, found_LKH.transpose(0, 1))


def _with_values(found: Sequence[Tensor], value_dim: int) -> tuple[Tensor, Tensor]:
    """Keys and values, where values may be the first entries of keys."""
    return found[0], found[-1][..., :value_dim]


def _gather(layer: KvLayer, name: str, gathered: Gathered, room_PH: Tensor) -> Tensor:
    head_dim = room_PH.shape[1]
    rows_PH = _plain(layer.tensors[name]).view(-1, head_dim)
    found = torch.index_select(rows_PH, 0, gathered.rows_P, out=room_PH)
    shape = (gathered.slices, -1, gathered.length, head_dim)
    return _restored(layer, name, found.view(shape)).flatten(0, 1)


def _decode_gathered(q_TNH: Tensor, layer: KvLayer, gathered: Gathered, out_TNH: Tensor) -> None:
    # Products of half types would round the scores before the softmax.
    exact = torch.promote_types(q_TNH.dtype, torch.float32)
    places = zip(layer.tensors, gathered.room, strict=True)
    found = [_gather(layer, name, gathered, room_PH).to(exact) for name, room_PH in places]
    k, v = _with_values(found, out_TNH.shape[-1])
    q_SNH = q_TNH[gathered.where]
    q = q_SNH.reshape(len(k), -1, k.shape[2]).to(exact)
    scores = torch.baddbmm(gathered.hidden.to(exact), q, k.transpose(1, 2), alpha=layer.scale)
    out_SNH = torch.bmm(scores.softmax(-1), v).view(*q_SNH.shape[:2], -1)
    out_TNH[gathered.where] = out_SNH.to(out_TNH.dtype)


def _decode_views(
    q_TNH: Tensor, layer: KvLayer, views: tuple[Viewed, ...], out_TNH: Tensor
) -> None:
    exact = torch.promote_types(q_TNH.dtype, torch.float32)
    nothing = torch.zeros(1, 1, 1, dtype=exact)
    for token, where in views:
        found = [_read(layer, name, where).to(exact) for name in layer.tensors]
        k_KLH, v_KLH = _with_values(found, out_TNH.shape[-1])
        q_KGH = q_TNH[token].reshape(len(k_KLH), -1, k_KLH.shape[2]).to(exact)
        scores = torch.baddbmm(nothing, q_KGH, k_KLH.transpose(1, 2), beta=0, alpha=layer.scale)
        out_TNH[token].copy_(torch.bmm(scores.softmax(-1), v_KLH).view(out_TNH.shape[1:]))


def _prefill(q_TNH: Tensor, layer: KvLayer, prefill: Prefill, out_TNH: Tensor) -> None:
    found = [_read(layer, name, prefill.where) for name in layer.tensors]
    if LATENT in layer.tensors:
        latent_prefill(q_TNH, found[0][0], layer.scale, prefill, out_TNH)
        return
    k_KLH, v_KLH = found
    q_NQH = q_TNH[prefill.begin : prefill.end].transpose(0, 1).to(k_KLH.dtype)
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
