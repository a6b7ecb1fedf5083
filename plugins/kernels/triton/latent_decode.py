"""Launches of a layer's decodes of latent attention: shares, and then what several have a part of.

Shape suffixes: S slices, N heads, H entries that are stored of a token, R of those the ones that
are its value.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import BatchLimits, KvLayer, KvSpec
from jackfield.plugins.kernels.triton.attention_step import (
    INTERPRETED,
    SMALLEST,
    TritonStep,
    exact,
)
from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.decode_launch import early_of, parts_at_once
from jackfield.plugins.kernels.triton.encode import as_pairs, kind_of
from jackfield.plugins.kernels.triton.latent_decode_kernel import latent_decode_kernel
from jackfield.plugins.kernels.triton.latent_gather import LATENT
from jackfield.plugins.kernels.triton.latent_merge_kernel import latent_merge_kernel
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.shares import Shares, make_shares, room_for
from jackfield.plugins.kernels.triton.shares_kernel import FIELDS
from jackfield.plugins.kernels.triton.support import capability, num_processors

MANY = 64
"""Heads from which on all take the same configuration."""
MERGED = 4
"""Heads that one program merges at most, and its warps."""


class LatentGeometry(NamedTuple):
    """What the work of a layer depends on beside the batch. dtype: in which table it is looked
    up. paired: whether entries are read as pairs of codes."""

    num_heads: int
    rank: int
    rotated: int
    block_size: int
    dtype: torch.dtype
    device: torch.device
    paired: bool

    @property
    def shape(self) -> str:
        """Its class in the table."""
        return f"heads_{min(max(power_of_two(self.num_heads), SMALLEST), MANY)}"

    @property
    def least(self) -> int:
        """Entries that products sum over at least; of pairs of codes they take half."""
        return 2 * SMALLEST if self.paired else SMALLEST

    def group(self, config: Config) -> int:
        """Heads of one program: as many as it may have, where all have the same number."""
        groups = -(-self.num_heads // config["HEADS"])
        while self.num_heads % groups:
            groups += 1
        return self.num_heads // groups


class LatentShares(NamedTuple):
    """The work of one geometry's layers in a step. group: heads of one program.

    In configurations HEADS are those of a program at most, CTAS programs per processor, LEAST tiles
    of a share at least, and REGISTERS (may be left out) those of a thread at most.

    partials `[2 * programs, group, R]` and sums `[2 * programs, group]`, float32.
    """

    shares: Shares
    config: Config
    group: int
    partials: Tensor
    sums: Tensor


def latent_decode(
    q_SNH: Tensor,
    layer: KvLayer,
    step: TritonStep,
    out_SNR: Tensor,
    configs: Configs | None = None,
    *,
    alone: bool = True,
) -> None:
    """Attention of the first slices of a step, which have one token each, to what is stored.

    Queries are those of stored vectors. configs: None = as they are shipped. alone: nothing else is
    launched meanwhile. Nothing is allocated once the step has a plan, at its first layer.
    """
    assert q_SNH.stride(2) == 1, "entries of a query lie side by side"
    assert out_SNR.stride()[1:] == (out_SNR.shape[2], 1), "heads of the output lie side by side"
    geometry = latent_geometry(q_SNH, layer, out_SNR.shape[2])
    plan = step.latent.get(geometry)
    if plan is None:
        plan = step.latent[geometry] = _make_plan(step, geometry, configs or latent_configs())
    _attend(q_SNH, layer, step, out_SNR, geometry, plan, alone=alone)
    _merge(step, out_SNR, geometry, plan, alone=alone)


def latent_scratch(spec: KvSpec, limits: BatchLimits, processors: int) -> int:
    """Bytes of partial results at most, whatever device it is."""
    assert spec.latent is not None
    found = 0
    for _, _, _, config in latent_configs().entries():
        programs = processors * config["CTAS"]
        heads = min(config["HEADS"], spec.num_heads)
        room = 2 * heads * (spec.latent.rank + 1) + FIELDS.value
        found = max(found, (programs + 1) * room * torch.float32.itemsize)
    return found


def latent_geometry(q_SNH: Tensor, layer: KvLayer, rank: int) -> LatentGeometry:
    stored = layer.tensors[LATENT]
    _, _, block_size, entries = stored.shape
    # Products of float32 take the smaller tiles, whatever is stored.
    dtype = q_SNH.dtype if q_SNH.dtype is torch.float32 else stored.dtype
    paired, heads = stored.dtype.itemsize == 1, q_SNH.shape[1]
    return LatentGeometry(heads, rank, entries - rank, block_size, dtype, q_SNH.device, paired)


@cache
def latent_configs() -> Configs:
    """As they are shipped."""
    return Configs("latent")


def _make_plan(step: TritonStep, geometry: LatentGeometry, configs: Configs) -> LatentShares:
    config, device = configs.find(geometry.shape, geometry.dtype, geometry.device), geometry.device
    programs = num_processors(device, INTERPRETED) * config["CTAS"]
    group, tile = geometry.group(config), config["TILE"]
    shares = room_for(programs, tile, tile, device)
    make_shares(step.batch, geometry.num_heads // group, None, shares, config["LEAST"])
    partials = torch.empty((2 * programs, group, geometry.rank), dtype=torch.float32, device=device)
    sums = torch.empty(partials.shape[:2], dtype=torch.float32, device=device)
    return LatentShares(shares, config, group, partials, sums)


def _attend(
    q_SNH: Tensor,
    layer: KvLayer,
    step: TritonStep,
    out_SNR: Tensor,
    geometry: LatentGeometry,
    plan: LatentShares,
    *,
    alone: bool,
) -> None:
    batch, scales, stored = step.batch, layer.scales, as_pairs(layer.tensors[LATENT])
    assert stored[0].is_contiguous(), "vectors of a block lie side by side"
    latent_decode_kernel[(plan.shares.programs,)](
        q_SNH,
        out_SNR,
        stored,
        plan.sums if scales is None else scales.k_K,
        batch.block_tables_SB,
        batch.lens_S,
        plan.shares.table,
        plan.partials,
        plan.sums,
        batch.num_decodes,
        q_SNH.stride(0),
        q_SNH.stride(1),
        out_SNR.stride(0),
        stored.stride(0),
        batch.block_tables_SB.stride(0),
        layer.scale,
        **_sizes(geometry, plan),
        ROTATED=geometry.rotated,
        ROTATED_WIDTH=max(power_of_two(geometry.rotated), geometry.least),
        BLOCK_SIZE=geometry.block_size,
        ROWS=max(power_of_two(plan.group), SMALLEST),
        STAGES=plan.config["num_stages"],
        KIND=kind_of(layer.encoding),
        ASSEMBLY=capability(geometry.device),
        SCALED=scales is not None,
        EXACT=exact(q_SNH.dtype),
        num_warps=plan.config["num_warps"],
        num_stages=plan.config["num_stages"],
        maxnreg=plan.config.get("REGISTERS"),
        **early_of(geometry.device, alone=alone),
    )


def _merge(
    step: TritonStep,
    out_SNR: Tensor,
    geometry: LatentGeometry,
    plan: LatentShares,
    *,
    alone: bool,
) -> None:
    sizes = _sizes(geometry, plan)
    heads = merged_heads(plan.group)
    latent_merge_kernel[(plan.shares.programs, plan.group // heads)](
        plan.partials,
        plan.sums,
        out_SNR,
        step.batch.lens_S,
        plan.shares.table,
        step.batch.num_decodes,
        out_SNR.stride(0),
        **sizes,
        HEADS=heads,
        PARTS=parts_at_once(MERGED, heads * sizes["WIDTH"]),
        num_warps=MERGED,
        **early_of(geometry.device, alone=alone),
    )


def merged_heads(group: int) -> int:
    """Of one program, a power of two that divides those of a group."""
    return min(group & -group, MERGED)


def _sizes(geometry: LatentGeometry, plan: LatentShares) -> dict[str, Any]:
    return {
        "GROUPS": geometry.num_heads // plan.group,
        "GROUP": plan.group,
        "RANK": geometry.rank,
        "WIDTH": max(power_of_two(geometry.rank), geometry.least),
        "TILE": plan.shares.tile,
    }
