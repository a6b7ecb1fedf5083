"""Equal shares of a step's decodes for a fixed number of programs: made once a step."""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from jackfield.core.api.kernel import AttnBatch
from jackfield.plugins.kernels.triton.shares_kernel import FIELDS, shares_kernel

FEW, BLOCK = 32, 256
"""Rows that are looked at at once, if there are no more, and if there are."""
PLACES = 32
"""Shares that one program makes: each looks at all rows, so that none waits for another."""
WARPS = 8


class Shares(NamedTuple):
    """table `[programs + 1, FIELDS]`: as `shares_kernel` fills it. tile, align: as it was told."""

    table: Tensor
    programs: int
    tile: int
    align: int


def make_shares(
    batch: AttnBatch, kv_heads: int, window: int | None, shares: Shares, least: int
) -> Shares:
    """One launch that fills the table. least: tiles of a share at least."""
    block = FEW if batch.num_decodes <= FEW else BLOCK
    shares_kernel[(triton.cdiv(shares.programs + 1, PLACES),)](
        batch.lens_S,
        shares.table,
        batch.num_decodes,
        shares.programs,
        window or 0,
        least,
        HEADS=kv_heads,
        TILE=shares.tile,
        ALIGN=shares.align,
        BLOCK=block,
        PLACES=PLACES,
        WINDOWED=window is not None,
        num_warps=WARPS,
    )
    return shares


def room_for(programs: int, tile: int, align: int, device: torch.device) -> Shares:
    """A table that is not filled yet."""
    table = torch.empty(programs + 1, FIELDS.value, dtype=torch.int32, device=device)
    return Shares(table, programs, tile, align)
