"""Prompts of latent attention: keys and values of each head are made of what is stored, a bounded
number of positions at a time, and attended to in tiles or by dense calls.

Shape suffixes: L positions that are expanded together, N heads, H entries that are stored of a
position, R those of its shared vector, Q entries of a query or key, V of a value, X of a value and
the part of a key that is not rotated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import BatchLimits, KvLayer, KvSpec
from jackfield.core.api.latent import LatentHeads, LatentSizes
from jackfield.plugins.kernels.triton.attention_step import TritonStep
from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.latent_dense import LatentDense, LatentDenseSlice
from jackfield.plugins.kernels.triton.latent_gather import Spots, gather_latents
from jackfield.plugins.kernels.triton.latent_plan import (
    Chunk,
    Pass,
    Tiling,
    absorbed,
    groups,
    make_pass,
    most_parts,
    rows_of,
)
from jackfield.plugins.kernels.triton.latent_prefill_kernel import latent_prefill_kernel
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.prefill import LOG2_E, PrefillStep, operands, upload
from jackfield.plugins.kernels.triton.prefill_join import join_kernel
from jackfield.plugins.kernels.triton.prefill_kernel import FIELDS
from jackfield.plugins.kernels.triton.prefill_plan import CLASSES, Slice
from jackfield.plugins.kernels.triton.support import num_processors

ROOM = 256 << 20
"""Bytes of keys and values of all heads that are made at once."""
SMALLEST = 16
"""That a product sums over."""


class Launch(NamedTuple):
    """One chunk. spots: of what is gathered. work: pieces."""

    spots: Spots
    work: Tensor


class Launches(NamedTuple):
    """One pass. parts: that it has, of each head."""

    config: Config
    chunks: tuple[Launch, ...]
    parts: int
    joins: Tensor | None


@dataclass(slots=True)
class LatentPlan:
    """Who computes which tokens of a step. absorbed: slices that are computed like decodes.
    decodes: the step that they are, once it was made."""

    passes: tuple[Launches, ...]
    dense: tuple[LatentDenseSlice, ...]
    absorbed: tuple[Slice, ...]
    decodes: TritonStep | None = None


class LatentPrefill:
    """dense: None = that of the device's library. slots: programs that run at the same time; None =
    as many as the device has multiprocessors. room: see `ROOM`."""

    def __init__(
        self, dense: LatentDense | None = None, slots: int | None = None, room: int = ROOM
    ) -> None:
        self.dense = dense or LatentDense()
        self._slots = slots
        self._room = room
        self._configs = Configs("latent_prefill")

    def workspace(self, spec: KvSpec, limits: BatchLimits, device: torch.device) -> int:
        """Bytes of scratch at most for one layer group; groups run one after the other."""
        sizes, heads = spec.latent, spec.num_heads
        assert sizes is not None
        most = self._most(sizes, heads, spec.dtype)
        entries = most * (heads * (sizes.plain + sizes.value) + sizes.stored)
        length = limits.max_blocks * spec.block_size
        parts = 0
        for rows in CLASSES:
            tiling = self._tiling(self._find(sizes, rows, spec.dtype, device), heads, device)
            found = most_parts(length, limits.max_tokens, most, tiling) * tiling.tokens
            parts = max(parts, found * (_padded(sizes.value) + 1))
        tiled = entries * spec.dtype.itemsize + 4 * parts
        return max(tiled, self.dense.workspace(spec, limits, device))

    def plan(
        self, step: PrefillStep, heads: LatentHeads, sizes: LatentSizes, device: torch.device
    ) -> LatentPlan:
        """Made at the first layer of a step that has such sizes."""
        count, dtype = len(heads.merged_NXR), heads.merged_NXR.dtype
        key: Any = (sizes, count, dtype)
        plan: LatentPlan | None = step.plans.get(key)
        if plan is None:
            plan = step.plans[key] = self._make_plan(step, sizes, count, dtype, device)
        return plan

    def forward(
        self,
        q_TNQ: Tensor,
        heads: LatentHeads,
        layer: KvLayer,
        step: PrefillStep,
        plan: LatentPlan,
        out_TNV: Tensor,
    ) -> None:
        """Fills the rows in `out` of what the plan does not leave to the absorbed form."""
        for launches in plan.passes:
            _Run(q_TNQ, heads, layer, step, out_TNV, launches)()
        for one in plan.dense:
            self.dense.forward(q_TNQ, heads, layer, one, out_TNV)

    def _make_plan(
        self,
        step: PrefillStep,
        sizes: LatentSizes,
        heads: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> LatentPlan:
        few = absorbed(step.slices, sizes)
        dense, rest = [], []
        for one in (one for one in step.slices if one not in few):
            split = self.dense.split(one, sizes, heads, dtype, device)
            if split is None:
                rest.append(one)
                continue
            dense.append(self.dense.prepare(split, one, step.tables_SB, sizes, heads, dtype))
            if split.rows < one.tokens:
                begin = one.extent.begin + split.rows
                rest.append(one._replace(extent=one.extent._replace(begin=begin)))
        most = self._most(sizes, heads, dtype)
        passes = []
        for slices in groups(rest, most):
            config = self._find(sizes, rows_of(slices), dtype, device)
            found = make_pass(slices, most, self._tiling(config, heads, device))
            passes.append(_uploaded(found, config, step.tables_SB))
        return LatentPlan(tuple(passes), tuple(dense), tuple(few))

    def _most(self, sizes: LatentSizes, heads: int, dtype: torch.dtype) -> int:
        """Positions that are expanded at once."""
        each = heads * (sizes.plain + sizes.value) * dtype.itemsize
        return max(self._room // each, 1)

    def _find(
        self, sizes: LatentSizes, rows: int, dtype: torch.dtype, device: torch.device
    ) -> Config:
        widest = max(_padded(sizes.plain), _padded(sizes.value))
        return self._configs.find(f"head_{max(widest, 64)}/rows_{rows}", dtype, device)

    def _tiling(self, config: Config, heads: int, device: torch.device) -> Tiling:
        if self._slots is None:
            self._slots = num_processors(device, 1)
        return Tiling(config["BLOCK_M"], config["BLOCK_N"], heads, self._slots)


class _Run(NamedTuple):
    """One pass of one layer."""

    q_TNQ: Tensor
    heads: LatentHeads
    layer: KvLayer
    step: PrefillStep
    out_TNV: Tensor
    launches: Launches

    def __call__(self) -> None:
        parts, lse = self._parts()
        for chunk in self.launches.chunks:
            stored_LH = gather_latents(
                self.layer, self.step.tables_SB, chunk.spots, self._rank, self.q_TNQ
            )
            heads_LX = stored_LH[:, : self._rank] @ self.heads.merged_NXR.flatten(0, 1).t()
            self._attend(chunk, heads_LX, stored_LH, parts, lse)
        if self.launches.joins is not None:
            self._join(self.launches.joins, parts, lse)

    @property
    def _rank(self) -> int:
        return self.heads.merged_NXR.shape[2]

    @property
    def _value(self) -> int:
        return self.out_TNV.shape[2]

    def _parts(self) -> tuple[Tensor, Tensor]:
        shape = self.launches.parts, self.out_TNV.shape[1], self.launches.config["BLOCK_M"]
        exact: dict[str, Any] = {"dtype": torch.float32, "device": self.out_TNV.device}
        return torch.empty(*shape, _padded(self._value), **exact), torch.empty(shape, **exact)

    def _attend(
        self, chunk: Launch, heads_LX: Tensor, stored_LH: Tensor, parts: Tensor, lse: Tensor
    ) -> None:
        q_TNQ, config, (heads, plain, rank) = self.q_TNQ, self.launches.config, _shape(self.heads)
        rotated = stored_LH.shape[1] - rank
        latent_prefill_kernel[(len(chunk.work) * heads,)](
            q_TNQ,
            heads_LX,
            stored_LH,
            self.out_TNV,
            chunk.work,
            parts,
            lse,
            self.layer.scale * LOG2_E,
            *q_TNQ.stride()[:2],
            *self.out_TNV.stride()[:2],
            HEADS=heads,
            RANK=rank,
            ROTATED=rotated,
            PLAIN=plain,
            VALUE=self._value,
            BLOCK_W=_padded(rotated),
            BLOCK_P=_padded(plain),
            BLOCK_V=_padded(self._value),
            BLOCK_M=config["BLOCK_M"],
            BLOCK_N=config["BLOCK_N"],
            DOT=operands(q_TNQ.dtype),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )

    def _join(self, joins: Tensor, parts: Tensor, lse: Tensor) -> None:
        rows, heads = self.launches.config["BLOCK_M"], self.out_TNV.shape[1]
        join_kernel[(len(joins) * heads, rows)](
            parts,
            lse,
            self.out_TNV,
            joins,
            *self.out_TNV.stride()[:2],
            LANES=heads,
            GROUP=1,
            PACK=1,
            HEAD_DIM=self._value,
            BLOCK_H=_padded(self._value),
            BLOCK_M=rows,
            num_warps=4,
        )


def _shape(heads: LatentHeads) -> tuple[int, int, int]:
    count, plain, rank = heads.keys_NPR.shape
    return count, plain, rank


def _padded(size: int) -> int:
    return max(SMALLEST, power_of_two(size))


def _uploaded(found: Pass, config: Config, tables_SB: Tensor) -> Launches:
    """All its tables in one copy."""
    rows = list(_rows(found))
    table = upload(rows, tables_SB.device)
    begin, chunks = 0, []
    for chunk in found.chunks:
        middle = begin + len(chunk.ranges)
        end = middle + len(chunk.pieces)
        chunks.append(Launch(_spots(chunk, table[begin:middle]), table[middle:end]))
        begin = end
    joins = table[begin:] if found.joins else None
    return Launches(config, tuple(chunks), found.parts, joins)


def _rows(found: Pass) -> Iterator[tuple[int, ...]]:
    for chunk in found.chunks:
        yield from map(_wide, chunk.ranges)
        yield from map(_wide, chunk.pieces)
    yield from map(_wide, found.joins)


def _wide(row: tuple[int, ...]) -> tuple[int, ...]:
    return *row, *(0,) * (FIELDS.value - len(row))


def _spots(chunk: Chunk, ranges: Tensor) -> Spots:
    return Spots(ranges, chunk.positions, max(each.positions for each in chunk.ranges))
