"""Launches of a layer's decodes."""

from functools import partial

from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.kernels.triton.attention_step import (
    Geometry,
    Plan,
    SharesPlan,
    TritonStep,
    geometry_of,
)
from jackfield.plugins.kernels.triton.beside import Beside
from jackfield.plugins.kernels.triton.decode_kernel import decode_kernel
from jackfield.plugins.kernels.triton.decode_launch import (
    heads_of,
    merge_options,
    merged_of,
    merges_few,
    options_of,
    warps_of,
)
from jackfield.plugins.kernels.triton.decode_shares import decode_shares
from jackfield.plugins.kernels.triton.encode import as_pairs
from jackfield.plugins.kernels.triton.merge_kernel import merge_kernel


def decode_attention(
    q_TNH: Tensor,
    layer: KvLayer,
    step: TritonStep,
    out_TNH: Tensor,
    beside: Beside,
    *,
    alone: bool = True,
) -> None:
    """Attention of the first slices of a step, which have one token each. alone: nothing else is
    launched meanwhile. Nothing is allocated once the step has a plan; see `plan_decodes`."""
    assert out_TNH.stride()[1:] == (out_TNH.shape[2], 1), "heads of the output lie side by side"
    geometry = geometry_of(q_TNH, layer)
    plan = step.plan(geometry)
    if isinstance(plan, SharesPlan):
        decode_shares(q_TNH, layer, step.batch, out_TNH, geometry, plan, alone=alone)
        return
    launch = partial(_launch, q_TNH, layer, step, out_TNH, geometry, plan)
    if plan.grouped and alone:
        # Common beginnings are bound by products, what rows have for themselves by memory.
        with beside(geometry.device):
            launch(grouped=True, alone=False)
        launch(grouped=False, alone=False)
        beside.join(geometry.device)
        alone = False
    else:
        if plan.grouped:
            launch(grouped=True, alone=alone)
        launch(grouped=False, alone=alone)
    if not _last_merges(geometry, plan):
        _merge(step.batch.num_decodes, out_TNH, geometry, plan, alone=alone)


def plan_decodes(q_TNH: Tensor, layer: KvLayer, step: TritonStep) -> Tensor:
    """Makes the step's plan for the layer's geometry. The queries as `decode_attention` takes
    them."""
    if q_TNH.stride()[1:] != (q_TNH.shape[2], 1):
        q_TNH = q_TNH.contiguous()
    step.plan(geometry_of(q_TNH, layer))
    return q_TNH


def _launch(
    q_TNH: Tensor,
    layer: KvLayer,
    step: TritonStep,
    out_TNH: Tensor,
    geometry: Geometry,
    plan: Plan,
    *,
    grouped: bool,
    alone: bool,
) -> None:
    config, work, batch = plan.group_config if grouped else plan.config, plan.work, step.batch
    k, v = as_pairs(layer.tensors["k"]), as_pairs(layer.tensors["v"])
    assert k.stride() == v.stride(), "keys and values lie alike"
    scales, shared = layer.scales, batch.shared
    rows = max(config["ROWS"], geometry.rows) if grouped else geometry.rows
    warps = config["num_warps"] if grouped else warps_of(config, geometry)
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
        GROUPED=grouped,
        LAST=_last_merges(geometry, plan),
        num_warps=warps,
        **heads_of(geometry),
        **merged_of(geometry, warps),
        **options_of(q_TNH, layer, config, rows, alone=alone),
    )


def _merge(
    rows: int, out_TNH: Tensor, geometry: Geometry, plan: Plan, *, alone: bool
) -> None:
    merge_kernel[(rows, geometry.num_kv_heads)](
        plan.partials,
        plan.sums,
        out_TNH,
        plan.work.first_partials,
        plan.work.num_partials,
        out_TNH.stride(0),
        **merge_options(geometry, alone=alone),
    )


def _last_merges(geometry: Geometry, plan: Plan) -> bool:
    """Whether who finishes a row's last piece merges them all, in the same launch."""
    return bool(plan.config["LAST"]) and merges_few(geometry) and not plan.grouped
