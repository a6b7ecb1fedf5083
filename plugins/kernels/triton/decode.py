"""Launches of a layer's decodes."""

from typing import Any

import torch
from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.kernels.triton.attention_step import (
    SMALLEST,
    Geometry,
    Plan,
    TritonStep,
    exact,
    geometry_of,
)
from jackfield.plugins.kernels.triton.configs import Config
from jackfield.plugins.kernels.triton.decode_kernel import decode_kernel
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.encode import as_pairs, kind_of
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.merge_kernel import merge_kernel
from jackfield.plugins.kernels.triton.support import capability

PER_THREAD = 32
"""Entries of partial results that a thread merges at once."""
MERGE_WARPS = 4
MOST_MERGED = 4096
"""Entries of the heads of a group that one program of few warps may merge."""
WARP = 32
"""Threads of a warp."""
LARGE = 8192
"""Entries of the results of a piece from which on the warps of the table could not hold them."""


def decode_attention(q_TNH: Tensor, layer: KvLayer, step: TritonStep, out_TNH: Tensor) -> None:
    """Attention of the first slices of a step, which have one token each."""
    if q_TNH.stride()[1:] != (q_TNH.shape[2], 1):
        q_TNH = q_TNH.contiguous()
    assert out_TNH.stride()[1:] == (out_TNH.shape[2], 1), "heads of the output lie side by side"
    geometry = geometry_of(q_TNH, layer)
    plan = step.plan(geometry)
    if plan.grouped:
        _launch(q_TNH, layer, step, out_TNH, geometry, plan, grouped=True)
    _launch(q_TNH, layer, step, out_TNH, geometry, plan, grouped=False)
    if not _last_merges(geometry, plan):
        _merge(step.batch.num_decodes, out_TNH, geometry, plan)


def _launch(
    q_TNH: Tensor,
    layer: KvLayer,
    step: TritonStep,
    out_TNH: Tensor,
    geometry: Geometry,
    plan: Plan,
    *,
    grouped: bool,
) -> None:
    config, work, batch = plan.group_config if grouped else plan.config, plan.work, step.batch
    k, v = as_pairs(layer.tensors["k"]), as_pairs(layer.tensors["v"])
    assert k.stride() == v.stride(), "keys and values lie alike"
    scales, shared = layer.scales, batch.shared
    rows = max(config["ROWS"], geometry.rows) if grouped else geometry.rows
    large = not grouped and rows * geometry.width > LARGE
    warps = config["num_warps"] * (2 if large else 1)
    programs = min(work.capacity * geometry.num_kv_heads, plan.processors * config["CTAS"])
    decode_kernel[(programs,)](
        q_TNH,
        out_TNH,
        k,
        v,
        plan.sums if scales is None else scales.k_K,
        plan.sums if scales is None else scales.v_K,
        batch.block_tables_SB,
        work.group_items if grouped else work.items,
        work.capacity,
        plan.partials,
        plan.sums,
        work.counters,
        work.items if shared is None else shared.order_S,
        work.shared_partials,
        q_TNH.stride(0),
        out_TNH.stride(0),
        k.stride(0),
        batch.block_tables_SB.stride(0),
        layer.scale,
        **_heads(geometry, warps),
        BLOCK_SIZE=k.shape[2],
        ROWS=rows,
        TILE=config["TILE"],
        STAGES=config["num_stages"],
        KIND=kind_of(layer.encoding),
        ASSEMBLY=capability(q_TNH.device),
        SCALED=scales is not None,
        EXACT=exact(q_TNH.dtype),
        WINDOWED=layer.window is not None,
        GROUPED=grouped,
        LAST=_last_merges(geometry, plan),
        num_warps=warps,
        num_stages=config["num_stages"],
        maxnreg=config.get("REGISTERS") if rows == SMALLEST else None,
        **_early(config, q_TNH.device),
    )


def _merge(rows: int, out_TNH: Tensor, geometry: Geometry, plan: Plan) -> None:
    few = power_of_two(geometry.group) * geometry.width <= MOST_MERGED
    warps = MERGE_WARPS if few else 4 * MERGE_WARPS
    merge_kernel[(rows, geometry.num_kv_heads)](
        plan.partials,
        plan.sums,
        out_TNH,
        plan.work.first_partials,
        plan.work.num_partials,
        out_TNH.stride(0),
        **_heads(geometry, warps),
        num_warps=warps,
        **_early(plan.config, out_TNH.device),
    )


def _last_merges(geometry: Geometry, plan: Plan) -> bool:
    """Whether who finishes a row's last piece merges them all, in the same launch."""
    few = power_of_two(geometry.group) * geometry.width <= MOST_MERGED
    return bool(plan.config["LAST"]) and few and not plan.grouped


def _heads(geometry: Geometry, warps: int) -> dict[str, Any]:
    heads = power_of_two(geometry.group)
    return {
        "KV_HEADS": geometry.num_kv_heads,
        "GROUP": geometry.group,
        "HEAD_DIM": geometry.head_dim,
        "WIDTH": geometry.width,
        "HEADS": heads,
        "PARTS": max(warps * WARP * PER_THREAD // (heads * geometry.width), 1),
    }


def _early(config: Config, device: torch.device) -> dict[str, Any]:
    """A table may forbid it."""
    return early(device) if config.get("EARLY", 1) else {"EARLY": False}
