"""Which token ids a rank has the rows of."""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.draw import PART_MULTIPLE
from jackfield.core.api.model import Shard, Split, Weights


class IdPart(NamedTuple):
    """ids: of this rank, maybe none. rows: of each rank, as many as the one with the most ids has;
    those beyond the ids are padding. total: ids of all ranks."""

    total: int
    rows: int
    ids: range

    @classmethod
    def of(cls, count: int, shard: Shard) -> "IdPart":
        """Neighbouring ids, as evenly as blocks of rows allow."""
        if shard.size == 1:
            return cls(count, count, range(count))
        rows = -(-count // (shard.size * PART_MULTIPLE)) * PART_MULTIPLE
        first, last = shard.rank * rows, (shard.rank + 1) * rows
        return cls(count, rows, range(min(first, count), min(last, count)))

    def take(self, weights: Weights, name: str, width: int) -> Tensor:
        """The rows of a table of all ids; padding is 0."""
        shape = (self.total, width)
        if self.rows == self.total:
            return weights.take(name, shape)
        rows = weights.take(name, shape, Split.ROWS, self.ids)
        if len(rows) == self.rows:
            return rows
        padding = rows.new_zeros((self.rows - len(rows), width))
        return torch.cat([rows, padding])
