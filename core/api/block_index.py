"""Identity of blocks: how cached blocks are found by what they hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

KEY_BYTES = 16
TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class Chain:
    """The full blocks of one sequence, as an index sees them.

    keys: 16 bytes per block; each is a hash of its tokens and of the key before it, so that equal
    keys mean equal prefixes, but for collisions. tokens: 4 bytes (little endian) per token.
    spaces: (end, space): blocks up to `end` (exclusive) belong to that space; blocks of different
    spaces are never equal. Spaces are 16 bytes too.
    """

    keys: bytes
    tokens: bytes
    spaces: tuple[tuple[int, bytes], ...]

    def __len__(self) -> int:
        return len(self.keys) // KEY_BYTES

    def key(self, index: int) -> bytes:
        """The key of one block."""
        return self.keys[index * KEY_BYTES : (index + 1) * KEY_BYTES]


class BlockIndex(Protocol):
    """Finds cached blocks. An index, not an authority: the core compares the tokens of every block
    that it returns, its place in the sequence and its space.

    All calls come from the engine's thread. Ids are unique in the life of an engine.
    """

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        """Ids of the blocks that hold the chain from its block `start` on, as many as are known
        without a gap. parent: the id of the block before `start`; None for the first block. Not
        called where no block is known that has the chain's first space and key.

        Must not change what is returned later. Budget: 0.5 us per block.
        """

    def insert(
        self, block: int, parent: int | None, space: bytes, key: bytes, tokens: bytes
    ) -> None:
        """A block is known from now on. Its parent is; no other block has that parent, space and
        tokens."""

    def remove(self, block: int) -> None:
        """The block is gone. No block that is known has it as its parent."""

    def __len__(self) -> int:
        """Blocks that are known."""
