"""The pieces into which a step's decodes are cut: made once a step, used by all its layers."""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from jackfield.core.api.kernel import AttnBatch
from jackfield.plugins.kernels.triton.work_list_kernel import ITEM, work_list_kernel

PIECES = 32
"""Pieces of one head that a processor gets at most on average, beside one for each sequence."""
STORED = 256
"""Pieces that a warp writes at once."""
MOST_STORED = 1024
"""And all warps."""
WARPS = {32: 2, 256: 8}
"""By how many sequences are looked at at once; where there are more, one such block after the
other. Few threads do not wait long for each other, and each further size is compiled anew."""


class Cut(NamedTuple):
    """What the pieces depend on beside the batch.

    tile, group_tile: positions that are read at once, in own parts and in common beginnings.
    align: of what the first position with a window must be a multiple.
    members: decodes that read a common beginning together. overhead: what a piece costs beside its
    positions; cut: to have rows of several pieces; merge: each piece of the row with the most; all
    in positions.
    """

    kv_heads: int
    window: int | None
    processors: int
    tile: int
    align: int
    overhead: int
    cut: int
    merge: int
    group_tile: int
    members: int


class WorkList(NamedTuple):
    """As `work_list_kernel` fills it. capacity: of items, and of group_items, beside their end."""

    items: Tensor
    group_items: Tensor
    first_partials: Tensor
    num_partials: Tensor
    shared_partials: Tensor
    counters: Tensor
    capacity: int

    @property
    def partials(self) -> int:
        """Partial results at most."""
        grouped = self.group_items.numel() > 0
        return 2 * self.capacity if grouped else self.capacity


def capacity_of(rows: int, kv_heads: int, processors: int) -> int:
    """Pieces at most: every list without cuts fits, and as many more as can be of use."""
    return rows + -(-PIECES * processors // kv_heads)


def make_work_list(batch: AttnBatch, cut: Cut) -> WorkList:
    """One launch. Sequences that share a beginning are only seen as such without a window."""
    grouped = looks_for_groups(batch, cut.window)
    rows = batch.num_decodes
    work = _empty(rows, cut, grouped, batch.lens_S.device)
    shared = batch.shared if grouped and batch.shared is not None else (batch.lens_S,) * 4
    block = block_of(rows)
    work_list_kernel[(1,)](
        batch.lens_S,
        *shared,
        *work[:-1],
        rows,
        work.capacity,
        cut.window or 0,
        cut.processors,
        cut.overhead,
        cut.cut,
        cut.merge,
        HEADS=cut.kv_heads,
        TILE=cut.tile,
        ALIGN=cut.align,
        GROUP_TILE=cut.group_tile,
        MEMBERS=cut.members,
        BLOCK=block,
        PARTS=parts_of(block),
        GROUPED=grouped,
        WINDOWED=cut.window is not None,
        num_warps=WARPS[block],
    )
    return work


def looks_for_groups(batch: AttnBatch, window: int | None) -> bool:
    """Whether decodes that share a beginning are to read it once."""
    return batch.shared is not None and window is None


def block_of(rows: int) -> int:
    """Sequences that are looked at at once."""
    return next((block for block in WARPS if rows <= block), max(WARPS))


def parts_of(block: int) -> int:
    """Pieces of a row that are written at once."""
    return min(WARPS[block] * STORED, MOST_STORED) // block


def _empty(rows: int, cut: Cut, grouped: bool, device: torch.device) -> WorkList:
    capacity = capacity_of(rows, cut.kv_heads, cut.processors)
    listed = (capacity + 1) * ITEM.value
    sizes = (listed, listed if grouped else 0, rows, rows, rows, rows * cut.kv_heads)
    # Multiples of 16 bytes, or each new address would be compiled for anew.
    rooms = [triton.cdiv(size, 4) * 4 for size in sizes]
    room = torch.empty(sum(rooms), dtype=torch.int32, device=device)
    items, group_items, first, number, shared, counters = room.split(rooms)
    return WorkList(items, group_items, first, number, shared, counters, capacity)
