"""An index of blocks that is slow and evidently right."""

from collections.abc import Sequence
from typing import NamedTuple

from jackfield.core.api import TOKEN_BYTES, Chain


class Known(NamedTuple):
    """One block, as it was inserted."""

    parent: int | None
    space: bytes
    tokens: bytes


def space_at(chain: Chain, index: int) -> bytes:
    """The space of one block."""
    return next(space for end, space in chain.spaces if index < end)


class NaiveIndex:
    """A list of all blocks, in which every look-up begins at the front. A `BlockIndex`."""

    def __init__(self, block_size: int) -> None:
        self._width = block_size * TOKEN_BYTES
        self.known: dict[int, Known] = {}

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        """Block after block, each by its parent, space and tokens."""
        found: list[int] = []
        for index in range(start, len(chain)):
            space = space_at(chain, index)
            tokens = chain.tokens[index * self._width : (index + 1) * self._width]
            block = self.find(Known(parent, space, tokens))
            if block is None:
                break
            found.append(block)
            parent = block
        return found

    def find(self, wanted: Known) -> int | None:
        """The block that was inserted like this."""
        return next((block for block, one in self.known.items() if one == wanted), None)

    def insert(
        self, block: int, parent: int | None, space: bytes, key: bytes, tokens: bytes
    ) -> None:
        """Keys are not needed."""
        self.known[block] = Known(parent, space, tokens)

    def remove(self, block: int) -> None:
        """Forget it."""
        del self.known[block]

    @property
    def leaves(self) -> list[int]:
        """Blocks that no other one has as its parent, in the order of their arrival."""
        parents = {one.parent for one in self.known.values()}
        return [block for block in self.known if block not in parents]

    def __len__(self) -> int:
        return len(self.known)
