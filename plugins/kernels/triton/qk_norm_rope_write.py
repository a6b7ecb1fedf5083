"""Norms and rotates queries and keys, and stores keys and values: one launch, one read each.

A program has some heads of one kind of one token. A head is held in three parts: the two halves
that are rotated against each other, and the rest.
"""

import triton
from torch import Tensor

from jackfield.core.api.kernel import KvLayer, Projected
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.encode import as_codes, kind_of
from jackfield.plugins.kernels.triton.launch import amount_config, power_of_two
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.qk_norm_rope_write_kernel import qk_norm_rope_write_kernel
from jackfield.plugins.kernels.triton.support import TritonConfig


class TritonQkNormRopeWrite(TritonOperation):
    """Queries in place; what is rounded, and when, is as if every operation ran by itself."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = Configs("qk_norm_rope_write")

    def __call__(self, projected: Projected, layer: KvLayer, slots_T: Tensor) -> Tensor:
        qkv, norms = projected.qkv_TMH, projected.norms
        tokens, _, head = qkv.shape
        assert qkv.stride()[1:] == (head, 1)
        heads, kv_heads = projected.num_heads, projected.num_kv_heads
        config = dict(amount_config(self._configs, qkv.numel(), qkv.dtype, qkv))
        size = config["HEADS"] = min(config["HEADS"], power_of_two(max(heads, kv_heads)))
        parts = triton.cdiv(heads, size) + 2 * triton.cdiv(kv_heads, size)
        if tokens:
            qk_norm_rope_write_kernel[(tokens * parts,)](
                qkv,
                qkv.stride(0),
                *_rotation(projected),
                qkv if norms is None else norms.query_H,
                qkv if norms is None else norms.key_H,
                0.0 if norms is None else float(norms.eps),
                *_pages(layer),
                *_scales(layer, projected.cos_TW),
                slots_T,
                NUM_HEADS=heads,
                NUM_KV_HEADS=kv_heads,
                HEAD=head,
                **_widths(head, projected.cos_TW.shape[1]),
                BLOCK_SIZE=layer.tensors["k"].shape[2],
                NORMED=norms is not None,
                KIND=kind_of(layer.encoding),
                SCALED=layer.encoding is not None and layer.scales is not None,
                **config,
                **early(qkv.device),
            )
        return qkv[:, :heads]


def _rotation(projected: Projected) -> tuple[Tensor, int, Tensor, int]:
    cos, sin = projected.cos_TW, projected.sin_TW
    assert cos.stride(1) == sin.stride(1) == 1
    return cos, cos.stride(0), sin, sin.stride(0)


def _pages(layer: KvLayer) -> tuple[Tensor, Tensor, int, int, int]:
    """Keys and values `[num_blocks, K, block_size, H]`, and the strides of both."""
    k, v = as_codes(layer.tensors["k"]), as_codes(layer.tensors["v"])
    assert k.stride() == v.stride() and k.stride(3) == 1
    return k, v, k.stride(0), k.stride(1), k.stride(2)


def _scales(layer: KvLayer, unused: Tensor) -> tuple[Tensor, Tensor]:
    return (unused, unused) if layer.scales is None else (layer.scales.k_K, layer.scales.v_K)


def _widths(head: int, width: int) -> dict[str, int]:
    """The rotated pairs of a head, and the powers of two that hold its parts and all of it."""
    rest = power_of_two(head - 2 * width)
    return {
        "WIDTH": width,
        "PAIRS": power_of_two(width),
        "REST": rest,
        "WHOLE": power_of_two(head),
    }
