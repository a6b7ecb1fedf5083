"""Which decodes of a step begin with the same blocks.

Shape suffixes: S decodes of a step, P seats, B blocks of a table.
"""

from typing import NamedTuple

import numpy as np

from jackfield.core.engine.batch import Columns
from jackfield.core.engine.seat_tables import SeatTables

SMALLEST_GROUP = 4
SHORTEST_PREFIX = 512
"""Positions; below that, reading them once saves less than the second pass over them costs."""


class PrefixGroups(NamedTuple):
    """As `SharedPrefixes`, on the host."""

    order_S: np.ndarray
    rank_S: np.ndarray
    size_S: np.ndarray
    shared_S: np.ndarray


class LatestGroups:
    """Those of the step before count for a step of the same sequences: their tables have only
    become longer, and they share what they shared."""

    def __init__(self, tables: SeatTables, block_size: int) -> None:
        self._tables = tables
        self._block_size = block_size
        self._known: tuple[int, int, bytes] | None = None
        self._groups: PrefixGroups | None = None

    def of(self, columns: Columns, decodes: int) -> PrefixGroups | None:
        """The groups of the first `decodes` slices."""
        is_long = columns.lens_S[:decodes] > _least(self._block_size) * self._block_size
        num_long = int(np.count_nonzero(is_long))
        known = self._tables.num_joins, num_long, columns.seats_S[:decodes].tobytes()
        if known != self._known:
            self._known = known
            blocks_PB = self._tables.blocks_PB
            self._groups = prefix_groups(blocks_PB, columns, decodes, self._block_size)
        return self._groups


def _least(block_size: int) -> int:
    return -(-SHORTEST_PREFIX // block_size)


def prefix_groups(
    blocks_PB: np.ndarray, columns: Columns, decodes: int, block_size: int
) -> PrefixGroups | None:
    """None if no group is worth its while. decodes: how many slices at the front are such."""
    lens_S = columns.lens_S[:decodes]
    least = _least(block_size)
    long_S = (lens_S > least * block_size).nonzero()[0]
    if len(long_S) < SMALLEST_GROUP:
        return None
    seats = columns.seats_S[long_S]
    # Blocks are shared from the first on, so those with equal ones at one place are candidates.
    marks = blocks_PB[seats, least - 1]
    _, group, sizes = np.unique(marks, return_inverse=True, return_counts=True)
    if sizes.max() < SMALLEST_GROUP:
        return None
    return _grouped(blocks_PB, columns, decodes, block_size, long_S, group, sizes)


def _grouped(
    blocks_PB: np.ndarray,
    columns: Columns,
    decodes: int,
    block_size: int,
    long_S: np.ndarray,
    group: np.ndarray,
    sizes: np.ndarray,
) -> PrefixGroups:
    rank_S = np.zeros(decodes, dtype=np.int32)
    size_S = np.ones(decodes, dtype=np.int32)
    shared_S = np.zeros(decodes, dtype=np.int32)
    first_S = np.arange(decodes)
    for index in (sizes >= SMALLEST_GROUP).nonzero()[0]:
        members = long_S[group == index]
        common = _common(blocks_PB, columns, members, block_size)
        if common < SHORTEST_PREFIX:
            continue
        rank_S[members] = np.arange(len(members))
        size_S[members] = len(members)
        shared_S[members] = common
        first_S[members] = members[0]
    order_S = np.lexsort((rank_S, first_S))
    return PrefixGroups(
        order_S.astype(np.int32), rank_S[order_S], size_S[order_S], shared_S[order_S]
    )


def _common(
    blocks_PB: np.ndarray, columns: Columns, members: np.ndarray, block_size: int
) -> int:
    """Positions that all of them share; the last of each is its own."""
    most = (int(columns.lens_S[members].min()) - 1) // block_size
    tables = blocks_PB[columns.seats_S[members], :most]
    same_B = (tables == tables[0]).all(axis=0)
    return (most if same_B.all() else int(same_B.argmin())) * block_size
