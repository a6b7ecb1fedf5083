"""Which rows or columns of a weight a rank holds."""

from typing import NamedTuple

from jackfield.core.api.model import Shard, Split


class Share(NamedTuple):
    """Outputs or inputs of a product. total: of all ranks. part: those of this rank."""

    total: int
    part: range

    @classmethod
    def whole(cls, count: int) -> "Share":
        """Every rank has all of them."""
        return cls(count, range(count))

    @classmethod
    def even(cls, count: int, shard: Shard) -> "Share":
        """Every rank has equally many, and nobody else has those."""
        return cls(count, shard.part(count))

    @classmethod
    def heads(cls, count: int, size: int, shard: Shard) -> "Share":
        """Whole heads of some size: of fewer than there are ranks several have the same one."""
        part = shard.part(count)
        return cls(count * size, range(part.start * size, part.stop * size))

    def split(self, axis: Split) -> tuple[()] | tuple[Split, range]:
        """What `Weights.take` wants beside name and shape."""
        return () if len(self.part) == self.total else (axis, self.part)
