"""Blocks found by a chain of hashes: the identity of the default stack.

Source: automatic prefix caching of vLLM (Kwon et al., 2023).
"""

from collections.abc import Sequence

from jackfield.core.api import BlockIndex, CacheAxis, CachePlugin, Chain, hookimpl

Place = tuple[int | None, bytes, bytes]
"""Parent, space and key of a block."""


class HashChain:
    """A table from the place of a block to its id. A `BlockIndex`.

    The key of a block stands for all tokens up to its end. The parent is part of the place because
    the blocks before it may lie in different spaces. Of two blocks of one place, whose tokens
    differ although their keys do not, only the first one is found.
    """

    def __init__(self) -> None:
        self._blocks: dict[Place, int] = {}
        self._places: dict[int, Place] = {}

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        """One look-up per block."""
        known, key, found = self._blocks.get, chain.key, list[int]()
        for end, space in chain.spaces:
            for index in range(start + len(found), min(end, len(chain))):
                parent = known((parent, space, key(index)))
                if parent is None:
                    return found
                found.append(parent)
        return found

    def insert(
        self, block: int, parent: int | None, space: bytes, key: bytes, tokens: bytes
    ) -> None:
        """Tokens are the core's to compare."""
        place = (parent, space, key)
        if place not in self._blocks:
            self._blocks[place] = block
            self._places[block] = place

    def remove(self, block: int) -> None:
        """Also of a block that was not kept."""
        place = self._places.pop(block, None)
        if place is not None:
            del self._blocks[place]

    def __len__(self) -> int:
        return len(self._places)


class Prefix(CachePlugin):
    """Requests share the full blocks of equal prefixes, whose keys are equal then.

    Guarantee: a prefix that is cached is found as far as it is cached without a gap.
    """

    axis = CacheAxis.IDENTITY

    @hookimpl
    def identity(self, block_size: int) -> BlockIndex:
        """The same for every block size: keys are made elsewhere."""
        return HashChain()
