"""What is the same for all layers of a step: where in the pool each slice reads and writes.

A layer's tensor `[num_blocks, block_size, K, H]` is seen as rows of all heads' entries at one
position, or of one head's. On a CPU consecutive blocks are read where they lie. Otherwise rows are
gathered: positions beyond a slice's reach are sent to its last valid one, so that nothing
undefined is ever read; the mask hides them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import AttnBatch, SliceExtent

SHORT = 256
"""Positions from which a slice of one token may be read where it lies, by calls of its own."""
LARGE = 24 << 20
"""Bytes of keys and values of such slices from which that pays: copies of fewer stay in a cache,
where products of dense rows are faster than those of strided ones are in memory."""

ROOM = 256 << 20
"""Bytes of keys and values that are gathered at once; one slice may need more."""


class Geometry(NamedTuple):
    """What the row numbers and the room for rows depend on beside the batch.

    tensors: how many are read; one where values are part of the keys.
    """

    num_blocks: int
    block_size: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    window: int | None
    tensors: int = 2

    @property
    def bytes_per_position(self) -> int:
        """Keys and values of all heads."""
        return self.tensors * self.heads * self.head_dim * self.dtype.itemsize


class Gathered(NamedTuple):
    """Slices of one token in one product. hidden `[S * K, 1, L]`: 0 where seen, -inf where not.

    where: which slices they are. rows_P: by slice, head, and position. room `[2, P, H]` (of keys
    that hold their values: 1): what is read of one layer and group after the other; fresh memory
    would cost more than the copy.
    """

    where: slice | Tensor
    slices: int
    length: int
    rows_P: Tensor
    hidden: Tensor
    room: Tensor


class Viewed(NamedTuple):
    """One slice of one token whose positions lie side by side."""

    token: int
    where: slice


class Prefill(NamedTuple):
    """One slice of several tokens. seen_QL is None when it is plainly causal from position 0.

    where: its positions in the pool, or the tensor of them.
    """

    begin: int
    end: int
    where: slice | Tensor
    seen_QL: Tensor | None


class Plan(NamedTuple):
    """All places of a step for one geometry."""

    gathered: tuple[Gathered, ...]
    views: tuple[Viewed, ...]
    prefills: tuple[Prefill, ...]


class TorchStep:
    """One prepared batch. A plan is made at the first layer of each geometry."""

    def __init__(self, batch: AttnBatch) -> None:
        self.slots_T = batch.slots_T
        self._batch = batch
        self._plans: dict[Geometry, Plan] = {}

    def plan(self, geometry: Geometry) -> Plan:
        plan = self._plans.get(geometry)
        if plan is None:
            plan = _plan(self._batch, geometry)
            self._plans[geometry] = plan
        return plan


def _plan(batch: AttnBatch, geometry: Geometry) -> Plan:
    found = _side_by_side(batch, geometry) if _may_view(batch, geometry) else None
    found = found or [None] * batch.lens_S.shape[0]
    views = _views(batch, geometry, found)
    gathered = _gathered(batch, geometry, views) if len(views) < batch.num_decodes else ()
    if batch.num_decodes == batch.lens_S.shape[0]:
        return Plan(gathered, views, ())
    prefills = tuple(
        _prefill(batch, geometry, index, extent, found[index])
        for index, extent in enumerate(batch.prompts, batch.num_decodes)
        if extent.end > extent.begin
    )
    return Plan(gathered, views, prefills)


def _may_view(batch: AttnBatch, geometry: Geometry) -> bool:
    """A GPU would have to wait for the block tables; short decodes are gathered in any case."""
    if batch.slots_T.device.type != "cpu":
        return False
    decoded = batch.num_decodes * batch.max_len * geometry.bytes_per_position
    return batch.max_query_len > 1 or decoded >= LARGE


def _side_by_side(batch: AttnBatch, geometry: Geometry) -> list[slice | None]:
    """Where each slice's positions lie if its blocks are consecutive."""
    size, tables_SB = geometry.block_size, batch.block_tables_SB
    starts_S1 = batch.query_start_S1
    past_S = batch.lens_S - (starts_S1[1:] - starts_S1[:-1])
    reach = batch.max_len if geometry.window is None else geometry.window
    first_S = (past_S + 1 - reach).clamp_(min=0)
    column_B = torch.arange(tables_SB.shape[1] - 1)
    inner_SB = column_B >= (first_S // size).unsqueeze(1)
    inner_SB &= column_B < ((batch.lens_S - 1) // size).unsqueeze(1)
    gaps_S = (inner_SB & (tables_SB.diff(dim=1) != 1)).any(1)
    blocks_S = tables_SB.long().gather(1, (first_S // size).long().unsqueeze(1)).squeeze(1)
    begins = (blocks_S * size + first_S % size).tolist()
    counts = (batch.lens_S - first_S).tolist()
    return [
        None if gap else slice(begin, begin + count)
        for gap, begin, count in zip(gaps_S.tolist(), begins, counts, strict=True)
    ]


def _views(batch: AttnBatch, geometry: Geometry, found: list[slice | None]) -> tuple[Viewed, ...]:
    decodes = found[: batch.num_decodes]
    views = [
        Viewed(token, where)
        for token, where in enumerate(decodes)
        if where is not None and where.stop - where.start >= SHORT
    ]
    positions = sum(where.stop - where.start for _, where in views)
    return tuple(views) if positions * geometry.bytes_per_position >= LARGE else ()


def _rows(slots: Tensor, heads: int) -> Tensor:
    """Rows of single heads of slots `[S, L]`, by slice, head, and position."""
    head_K1 = torch.arange(heads, device=slots.device).unsqueeze(1)
    return (slots.unsqueeze(1) * heads + head_K1).flatten()


def _slots(tables_SB: Tensor, positions_SL: Tensor, geometry: Geometry) -> Tensor:
    size = geometry.block_size
    blocks = tables_SB.gather(1, positions_SL // size).long()
    # Only a padded slice of length 0 has no valid entry at all.
    return blocks.clamp_(0, geometry.num_blocks - 1) * size + positions_SL % size


def _gathered(
    batch: AttnBatch, geometry: Geometry, views: tuple[Viewed, ...]
) -> tuple[Gathered, ...]:
    """In groups, as many slices at once as there is room for."""
    count, longest = batch.num_decodes, batch.max_len
    chosen_S = None
    if views:
        chosen_S = torch.tensor(sorted(set(range(count)) - {view.token for view in views}))
        count, longest = len(chosen_S), int(batch.lens_S[chosen_S].max())
    reach = longest if geometry.window is None else min(geometry.window, longest)
    group = min(max(ROOM // (reach * geometry.bytes_per_position), 1), count)
    shape = (geometry.tensors, group * geometry.heads * reach, geometry.head_dim)
    room = torch.empty(shape, dtype=geometry.dtype, device=batch.lens_S.device)
    return tuple(
        _group(batch, geometry, where if chosen_S is None else chosen_S[where], reach, room)
        for where in (slice(begin, min(begin + group, count)) for begin in range(0, count, group))
    )


def _group(
    batch: AttnBatch, geometry: Geometry, where: slice | Tensor, reach: int, room: Tensor
) -> Gathered:
    lens_S1 = batch.lens_S[where].long().unsqueeze(1)
    count, device = len(lens_S1), lens_S1.device
    offset_L = torch.arange(reach, device=device)
    first_S1 = (lens_S1 - reach).clamp_(min=0)
    last_S1 = (lens_S1 - 1).clamp_(min=0)
    positions_SL = torch.minimum(first_S1 + offset_L, last_S1)
    slots_SL = _slots(batch.block_tables_SB[where], positions_SL, geometry)
    rows_P = _rows(slots_SL, geometry.heads)
    hidden = torch.zeros(count, 1, reach, device=device)
    hidden.masked_fill_((first_S1 + offset_L > last_S1).unsqueeze(1), float("-inf"))
    hidden = hidden.repeat_interleave(geometry.heads, 0)
    return Gathered(where, count, reach, rows_P, hidden, room[:, : len(rows_P)])


def _prefill(
    batch: AttnBatch,
    geometry: Geometry,
    index: int,
    extent: SliceExtent,
    where: slice | None,
) -> Prefill:
    begin, end, length = extent
    past, window = length - (end - begin), geometry.window
    first = 0 if window is None else max(0, past + 1 - window)
    positions_L = torch.arange(first, length, device=batch.lens_S.device)
    seen = None
    if past or (window is not None and window < length):
        query_Q1 = positions_L[-(end - begin) :].unsqueeze(1)
        seen = positions_L <= query_Q1
        if window is not None:
            seen &= positions_L > query_Q1 - window
    if where is not None:
        return Prefill(begin, end, where, seen)
    tables_1B = batch.block_tables_SB[index : index + 1]
    slots_L = _slots(tables_1B, positions_L.unsqueeze(0), geometry)[0]
    return Prefill(begin, end, slots_L, seen)
