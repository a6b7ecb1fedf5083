"""Storing a step's keys and values in a layer's blocks `[num_blocks, K, block_size, H]`."""

import triton
from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.kernels.triton.encode import as_codes, kind_of
from jackfield.plugins.kernels.triton.kv_write_kernel import kv_write_kernel
from jackfield.plugins.kernels.triton.latent_gather import LATENT
from jackfield.plugins.kernels.triton.launch import power_of_two

ENTRIES = 2048
"""Of one program."""


def kv_write(k_TKH: Tensor, v_TKH: Tensor, layer: KvLayer, slots_T: Tensor) -> None:
    """Encoded if the layer says so. A slot of -1: that token's are not stored."""
    k_TKH, v_TKH = (x if x.stride(2) == 1 else x.contiguous() for x in (k_TKH, v_TKH))
    k_pool, v_pool = as_codes(layer.tensors["k"]), as_codes(layer.tensors["v"])
    _launch(k_TKH, v_TKH, k_pool, v_pool, layer, slots_T, 2)


def latent_write(stored_T1H: Tensor, layer: KvLayer, slots_T: Tensor) -> None:
    """The same of the one tensor of latent attention, with the scale of keys."""
    assert stored_T1H.stride(2) == 1
    pool = as_codes(layer.tensors[LATENT])
    _launch(stored_T1H, stored_T1H, pool, pool, layer, slots_T, 1)


def _launch(
    k_TKH: Tensor,
    v_TKH: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    layer: KvLayer,
    slots_T: Tensor,
    kinds: int,
) -> None:
    tokens, kv_heads, head_dim = k_TKH.shape
    width, scales = power_of_two(head_dim), layer.scales
    size = max(ENTRIES // width, 1)
    rows = tokens * kv_heads
    if not rows:
        return
    kv_write_kernel[(triton.cdiv(rows, size), kinds)](
        k_TKH,
        v_TKH,
        k_pool,
        v_pool,
        slots_T if scales is None else scales.k_K,
        slots_T if scales is None else scales.v_K,
        slots_T,
        rows,
        *k_TKH.stride()[:2],
        *v_TKH.stride()[:2],
        k_pool.stride(0),
        v_pool.stride(0),
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        WIDTH=width,
        BLOCK_SIZE=k_pool.shape[2],
        KIND=kind_of(layer.encoding),
        SCALED=scales is not None,
        ROWS=size,
        num_warps=4,
    )
