"""Causal attention of slices of several tokens: in tiles, or by dense calls for a sequence."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from jackfield.core.api.kernel import AttnBatch, BatchLimits, KvLayer, KvSpec
from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.dense_prefill import DensePrefill, DenseSlice, Split
from jackfield.plugins.kernels.triton.encode import as_codes, kind_of, knows_e4m3
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.prefill_join import join_kernel
from jackfield.plugins.kernels.triton.prefill_kernel import FIELDS, prefill_kernel
from jackfield.plugins.kernels.triton.prefill_plan import (
    CLASSES,
    Slice,
    classify,
    divide,
    parted,
    tiles,
)
from jackfield.plugins.kernels.triton.support import interpreted, num_processors

LOG2_E = 1.4426950408889634
TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


class Geometry(NamedTuple):
    """What a plan depends on beside the batch."""

    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    encoded: bool
    window: int | None
    device: torch.device

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads


LARGE = 2048
"""Tokens of prompts from which on it is worth the host's time to launch decodes beside them."""


class Launch(NamedTuple):
    """Tiles of one size. work: their pieces. joins: of tiles whose keys were divided."""

    config: Config
    pack: int
    work: Tensor
    joins: Tensor | None


class Plan(NamedTuple):
    """Who computes which tokens of a step."""

    launches: tuple[Launch, ...]
    dense: tuple[DenseSlice, ...]


class PrefillStep:
    """One prepared batch. A plan is made at the first layer of each geometry."""

    def __init__(self, batch: AttnBatch) -> None:
        self.tables_SB = batch.block_tables_SB
        self.slices = tuple(
            Slice(row, extent)
            for row, extent in enumerate(batch.prompts, batch.num_decodes)
            if extent.end > extent.begin
        )
        self.max_len = max((one.extent.length for one in self.slices), default=0)
        self.is_large = sum(one.tokens for one in self.slices) >= LARGE
        self.plans: dict[Any, Any] = {}


class TritonPrefill:
    """Long prompts go to the dense route where that was found to work, all others to the kernel.

    dense: None = that of the device's library. slots: programs that run at the same time;
    None = as many as the device has multiprocessors.
    """

    def __init__(self, dense: DensePrefill | None = None, slots: int | None = None) -> None:
        self._dense = dense or DensePrefill()
        self._slots = slots
        self._configs = Configs("prefill")

    @property
    def notes(self) -> list[str]:
        """Why the dense route does not serve, or serves in a roundabout way; grows with probes."""
        return self._dense.notes

    def alignment(self, spec: KvSpec, device: torch.device) -> int:
        """Of positions at which long prompts had better be cut."""
        return self._dense.alignment(spec, device)

    def workspace(self, spec: KvSpec, limits: BatchLimits, device: torch.device) -> int:
        """Bytes of scratch at most for one layer group; groups run one after the other."""
        # Tiles are divided while they are fewer than half of what runs at once, into at most that
        # many pieces and one more for each.
        rows = 2 * self._programs(device) * CLASSES[-1]
        parts = 4 * rows * (_padded(spec.head_dim) + 1)
        return max(parts, self._dense.workspace(spec, limits, device))

    def prepare(self, batch: AttnBatch) -> PrefillStep:
        """Once per step and layer group. Only `batch.prompts` are looked at."""
        return PrefillStep(batch)

    def forward(self, q_TNH: Tensor, layer: KvLayer, step: PrefillStep, out_TNH: Tensor) -> None:
        """Fills the rows of the prompts in `out`, and no others."""
        if not step.slices:
            return
        plan = self._plan(_geometry(q_TNH, layer, step), step)
        for launch in plan.launches:
            _run(q_TNH, layer, step, out_TNH, launch)
        for one in plan.dense:
            self._dense.forward(q_TNH, layer, one, out_TNH)

    def _plan(self, geometry: Geometry, step: PrefillStep) -> Plan:
        plan: Plan | None = step.plans.get(geometry)
        if plan is None:
            plan = step.plans[geometry] = self._make_plan(geometry, step)
        return plan

    def _make_plan(self, geometry: Geometry, step: PrefillStep) -> Plan:
        dense, rest = [], []
        for one in step.slices:
            split = self._split(geometry, one)
            if split is None:
                rest.append(one)
                continue
            table_B = step.tables_SB[one.row]
            dense.append(self._dense.prepare(split, one.extent.begin, table_B, *geometry[:4]))
            if split.rows < one.tokens:
                begin = one.extent.begin + split.rows
                rest.append(one._replace(extent=one.extent._replace(begin=begin)))
        slots = self._programs(geometry.device) // geometry.kv_heads
        launches = tuple(
            launch
            for rows, slices in classify(rest, geometry.group, slots)
            for launch in self._launches(geometry, rows, slices, slots)
        )
        return Plan(launches, tuple(dense))

    def _split(self, geometry: Geometry, one: Slice) -> Split | None:
        if geometry.window is not None:
            return None
        heads, _, head_dim, dtype, *_, device = geometry
        split = self._dense.split(one.extent, heads, head_dim, dtype, device)
        if split is None or not self._dense.serves(*geometry[:4], device):
            return None
        return split

    def _launches(
        self, geometry: Geometry, rows: int, slices: Sequence[Slice], slots: int
    ) -> Iterator[Launch]:
        shape = _shape(geometry, rows)
        config = self._configs.find(shape, geometry.dtype, geometry.device)
        pack = min(config["PACK"] or geometry.group, geometry.group, config["BLOCK_M"])
        packs = -(-geometry.group // pack)
        found = tiles(slices, config["BLOCK_M"] // pack, geometry.window)
        slots, device = max(slots // packs, 1), geometry.device
        for together in parted(found, slots):
            divided = divide(together, config["BLOCK_N"], slots)
            if divided is None:
                yield Launch(config, pack, upload(together, device), None)
            else:
                yield Launch(config, pack, *(upload(rows, device) for rows in divided))

    def _programs(self, device: torch.device) -> int:
        if self._slots is None:
            self._slots = num_processors(device, 1)
        return self._slots


def _geometry(q_TNH: Tensor, layer: KvLayer, step: PrefillStep) -> Geometry:
    _, heads, head_dim = q_TNH.shape
    kv_heads = layer.tensors["k"].shape[1]
    window = layer.window
    if window is not None and window >= step.max_len:
        window = None
    encoded = layer.encoding is not None
    return Geometry(heads, kv_heads, head_dim, q_TNH.dtype, encoded, window, q_TNH.device)


def _shape(geometry: Geometry, rows: int) -> str:
    """The name of a class of shapes in the table. tight: masks that take registers of their own."""
    odd = geometry.group & (geometry.group - 1) != 0
    tight = geometry.window is not None or odd
    how = "encoded" if geometry.encoded else "tight" if tight else "plain"
    return f"head_{_padded(geometry.head_dim)}/{how}/rows_{rows}"


def _padded(head_dim: int) -> int:
    return max(16, power_of_two(head_dim))


def upload(rows: Sequence[tuple[int, ...]], device: torch.device) -> Tensor:
    """As int32 rows of a width that keeps them aligned."""
    padding = (0,) * (FIELDS.value - len(rows[0]))
    listed = [(*row, *padding) for row in rows]
    pinned = device.type == "cuda"
    host = torch.tensor(listed, dtype=torch.int32, device="cpu", pin_memory=pinned)
    return host.to(device, non_blocking=True)


def _run(q_TNH: Tensor, layer: KvLayer, step: PrefillStep, out_TNH: Tensor, launch: Launch) -> None:
    k, v = as_codes(layer.tensors["k"]), as_codes(layer.tensors["v"])
    _, kv_heads, page, head_dim = k.shape
    group, config, pack = q_TNH.shape[1] // kv_heads, launch.config, launch.pack
    lanes, block_h = kv_heads * -(-group // pack), _padded(head_dim)
    programs = len(launch.work) * lanes
    split = launch.joins is not None
    parts, lse = (
        _parts(programs, config["BLOCK_M"], block_h, q_TNH) if split else (out_TNH, out_TNH)
    )
    scales = layer.scales
    prefill_kernel[(programs,)](
        q_TNH,
        k,
        v,
        out_TNH,
        step.tables_SB,
        launch.work,
        launch.work if scales is None else scales.k_K,
        launch.work if scales is None else scales.v_K,
        parts,
        lse,
        layer.scale * LOG2_E,
        *q_TNH.stride()[:2],
        *out_TNH.stride()[:2],
        step.tables_SB.stride(0),
        k.stride(0),
        k.stride(1),
        LANES=lanes,
        GROUP=group,
        PACK=pack,
        HEAD_DIM=head_dim,
        BLOCK_H=block_h,
        PAGE=page,
        BLOCK_M=config["BLOCK_M"],
        BLOCK_N=config["BLOCK_N"],
        # Work beyond the window is not listed; where all is within it, no mask is needed.
        WINDOW=_window(layer, step),
        KIND=kind_of(layer.encoding),
        NATIVE=knows_e4m3(q_TNH.device),
        SCALED=scales is not None,
        SPLIT=split,
        DOT=operands(q_TNH.dtype),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )
    if launch.joins is not None:
        _join(launch, launch.joins, lanes, group, parts, lse, out_TNH)


def _join(
    launch: Launch,
    joins: Tensor,
    lanes: int,
    group: int,
    parts: Tensor,
    lse: Tensor,
    out_TNH: Tensor,
) -> None:
    head_dim = out_TNH.shape[2]
    join_kernel[(len(joins) * lanes, launch.config["BLOCK_M"])](
        parts,
        lse,
        out_TNH,
        joins,
        *out_TNH.stride()[:2],
        LANES=lanes,
        GROUP=group,
        PACK=launch.pack,
        HEAD_DIM=head_dim,
        BLOCK_H=_padded(head_dim),
        BLOCK_M=launch.config["BLOCK_M"],
        num_warps=4,
    )


def _parts(programs: int, rows: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    exact: dict[str, Any] = {"dtype": torch.float32, "device": like.device}
    return torch.empty(programs, rows, width, **exact), torch.empty(programs, rows, **exact)


def _window(layer: KvLayer, step: PrefillStep) -> int:
    return 0 if layer.window is None or layer.window >= step.max_len else layer.window


def operands(dtype: torch.dtype) -> Any:
    """The interpreter cannot multiply bfloat16."""
    if dtype == torch.bfloat16 and interpreted():
        return tl.float32
    return TYPES[dtype]
