"""What is the same for all layers of a step: which rows of the pool each slice reads and writes.

A layer's tensor `[num_blocks, K, block_size, H]` is seen as rows of one head's entries at one
position. Positions beyond a slice's reach are sent to its last valid one, so that nothing
undefined is ever read; the mask hides them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import AttnBatch


class Geometry(NamedTuple):
    """What the row numbers and the room for rows depend on beside the batch."""

    num_blocks: int
    heads: int
    block_size: int
    head_dim: int
    dtype: torch.dtype
    window: int | None


class Decodes(NamedTuple):
    """The slices of one token. hidden `[S * K, 1, L]`: 0 where seen, -inf where not.

    room `[2, P, H]`: keys and values of one layer after the other; fresh memory would cost more
    than the copy.
    """

    slices: int
    heads: int
    length: int
    rows_P: Tensor
    hidden: Tensor
    room: Tensor


class Prefill(NamedTuple):
    """One slice of several tokens. seen_QL is None when it is plainly causal from position 0."""

    begin: int
    end: int
    heads: int
    length: int
    rows_P: Tensor
    seen_QL: Tensor | None


class Plan(NamedTuple):
    """All row numbers of a step for one geometry."""

    written_P: Tensor
    decodes: Decodes | None
    prefills: tuple[Prefill, ...]


class TorchStep:
    """One prepared batch. A plan is made at the first layer of each geometry."""

    def __init__(self, batch: AttnBatch) -> None:
        self._batch = batch
        self._plans: dict[Geometry, Plan] = {}

    def plan(self, geometry: Geometry) -> Plan:
        plan = self._plans.get(geometry)
        if plan is None:
            plan = _plan(self._batch, geometry)
            self._plans[geometry] = plan
        return plan


def _plan(batch: AttnBatch, geometry: Geometry) -> Plan:
    written = _rows(batch.slots_T, geometry, token_major=True)
    decodes = _decodes(batch, geometry) if batch.num_decodes else None
    if batch.num_decodes == batch.lens_S.shape[0]:
        return Plan(written, decodes, ())
    starts, lens = batch.query_start_S1.tolist(), batch.lens_S.tolist()
    prefills = tuple(
        _prefill(batch, geometry, index, starts[index], starts[index + 1], lens[index])
        for index in range(batch.num_decodes, len(lens))
        if starts[index + 1] > starts[index]
    )
    return Plan(written, decodes, prefills)


def _rows(slots: Tensor, geometry: Geometry, token_major: bool) -> Tensor:
    """Row numbers of slots `[..., L]`: by head and then position, or by position and then head."""
    size, heads = geometry.block_size, geometry.heads
    head = torch.arange(heads, device=slots.device) * size
    first = slots.div(size, rounding_mode="floor") * (size * heads) + slots % size
    if token_major:
        return (first.unsqueeze(-1) + head).flatten()
    return (first.unsqueeze(-2) + head.unsqueeze(-1)).flatten()


def _slots(tables_SB: Tensor, positions_SL: Tensor, geometry: Geometry) -> Tensor:
    size = geometry.block_size
    blocks = tables_SB.gather(1, positions_SL // size).long()
    # Only a padded slice of length 0 has no valid entry at all.
    return blocks.clamp_(0, geometry.num_blocks - 1) * size + positions_SL % size


def _decodes(batch: AttnBatch, geometry: Geometry) -> Decodes:
    count, heads = batch.num_decodes, geometry.heads
    lens_S1 = batch.lens_S[:count].long().unsqueeze(1)
    reach = batch.max_len if geometry.window is None else min(geometry.window, batch.max_len)
    offset_L = torch.arange(reach, device=lens_S1.device)
    first_S1 = (lens_S1 - reach).clamp_(min=0)
    last_S1 = (lens_S1 - 1).clamp_(min=0)
    positions_SL = torch.minimum(first_S1 + offset_L, last_S1)
    rows_P = _rows(_slots(batch.block_tables_SB[:count], positions_SL, geometry), geometry, False)
    hidden = torch.zeros(count, 1, reach, device=lens_S1.device)
    hidden.masked_fill_((first_S1 + offset_L > last_S1).unsqueeze(1), float("-inf"))
    hidden = hidden.repeat_interleave(heads, 0)
    shape = (2, len(rows_P), geometry.head_dim)
    room = torch.empty(shape, dtype=geometry.dtype, device=rows_P.device)
    return Decodes(count, heads, reach, rows_P, hidden, room)


def _prefill(
    batch: AttnBatch, geometry: Geometry, index: int, begin: int, end: int, length: int
) -> Prefill:
    past, window = length - (end - begin), geometry.window
    first = 0 if window is None else max(0, past + 1 - window)
    positions_L = torch.arange(first, length, device=batch.lens_S.device)
    tables_1B = batch.block_tables_SB[index : index + 1]
    rows_P = _rows(_slots(tables_1B, positions_L.unsqueeze(0), geometry), geometry, False)
    seen = None
    if past or (window is not None and window < length):
        query_Q1 = positions_L[-(end - begin) :].unsqueeze(1)
        seen = positions_L <= query_Q1
        if window is not None:
            seen &= positions_L > query_Q1 - window
    return Prefill(begin, end, geometry.heads, length - first, rows_P, seen)
