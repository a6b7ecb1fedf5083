"""The order of an engine that was given none: what became evictable first goes first."""

from collections.abc import Iterable, Sequence
from itertools import islice

from jackfield.core.api import BlockMeta, Evictor


class OldestFirst(Evictor):
    """A base policy without ideas."""

    def __init__(self) -> None:
        super().__init__()
        self._evictable: dict[int, None] = {}

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        """Nothing is kept of them."""

    def touch(self, blocks: Sequence[int], now: float) -> None:
        """Use does not matter."""

    def update(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        """Nor does what is wished."""

    def evictable(self, blocks: Sequence[int]) -> None:
        """At the end."""
        self._evictable.update(dict.fromkeys(blocks))

    def busy(self, blocks: Sequence[int]) -> None:
        """Out of the order."""
        for block in blocks:
            self._evictable.pop(block, None)

    def remove(self, blocks: Sequence[int]) -> None:
        """Out of the order."""
        self.busy(blocks)

    def victims(self, count: int, now: float) -> Iterable[int]:
        """The first ones."""
        return list(islice(self._evictable, count))
