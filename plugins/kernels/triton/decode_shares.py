"""Launches of a layer's decodes where each program has a share of them."""

from torch import Tensor

from jackfield.core.api.kernel import AttnBatch, KvLayer
from jackfield.plugins.kernels.triton.attention_step import Geometry, SharesPlan
from jackfield.plugins.kernels.triton.decode_launch import (
    heads_of,
    merge_options,
    options_of,
    warps_of,
)
from jackfield.plugins.kernels.triton.decode_shares_kernel import decode_shares_kernel
from jackfield.plugins.kernels.triton.encode import as_pairs
from jackfield.plugins.kernels.triton.merge_kernel import merge_shares_kernel


def decode_shares(
    q_TNH: Tensor,
    layer: KvLayer,
    batch: AttnBatch,
    out_TNH: Tensor,
    geometry: Geometry,
    plan: SharesPlan,
    *,
    alone: bool,
) -> None:
    """Two launches: shares, and then what several of them have a part of."""
    shares, scales = plan.shares, layer.scales
    k, v = as_pairs(layer.tensors["k"]), as_pairs(layer.tensors["v"])
    assert k.stride() == v.stride(), "keys and values lie alike"
    rows, window = batch.num_decodes, layer.window or 0
    decode_shares_kernel[(shares.programs,)](
        q_TNH,
        out_TNH,
        k,
        v,
        plan.sums if scales is None else scales.k_K,
        plan.sums if scales is None else scales.v_K,
        batch.block_tables_SB,
        batch.lens_S,
        shares.table,
        plan.partials,
        plan.sums,
        rows,
        window,
        q_TNH.stride(0),
        out_TNH.stride(0),
        k.stride(0),
        batch.block_tables_SB.stride(0),
        layer.scale,
        **heads_of(geometry),
        ALIGN=shares.align,
        num_warps=warps_of(plan.config, geometry),
        **options_of(q_TNH, layer, plan.config, geometry.rows, alone=alone),
    )
    merge_shares_kernel[(shares.programs,)](
        plan.partials,
        plan.sums,
        out_TNH,
        batch.lens_S,
        shares.table,
        rows,
        window,
        out_TNH.stride(0),
        TILE=shares.tile,
        ALIGN=shares.align,
        WINDOWED=layer.window is not None,
        **merge_options(geometry, alone=alone),
    )
