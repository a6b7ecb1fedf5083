"""The index that takes over when the one of a plugin has failed: exact, and without ideas."""

from jackfield.core.api import Chain
from jackfield.core.api.block_index import TOKEN_BYTES

Place = tuple[int | None, bytes, bytes]


class PlainIndex:
    """A `BlockIndex`: a block is found by its parent, its space and its tokens."""

    def __init__(self, block_size: int) -> None:
        self._width = block_size * TOKEN_BYTES
        self._blocks: dict[Place, int] = {}
        self._places: dict[int, Place] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, chain: Chain, start: int, parent: int | None) -> list[int]:
        """See `BlockIndex`."""
        found: list[int] = []
        width, first = self._width, 0
        for end, space in chain.spaces:
            for index in range(max(first, start), min(end, len(chain))):
                tokens = chain.tokens[index * width : (index + 1) * width]
                block = self._blocks.get((parent, space, tokens))
                if block is None:
                    return found
                found.append(block)
                parent = block
            first = end
        return found

    def insert(
        self, block: int, parent: int | None, space: bytes, key: bytes, tokens: bytes
    ) -> None:
        """See `BlockIndex`."""
        place = (parent, space, tokens)
        self._blocks[place] = block
        self._places[block] = place

    def remove(self, block: int) -> None:
        """See `BlockIndex`."""
        place = self._places.pop(block)
        if self._blocks.get(place) == block:
            del self._blocks[place]
