"""What the blocks of a fake device hold: at each position a token, and all that came before it.

What a model keeps of a token depends on every token before it. So two blocks with the same tokens
after different prefixes hold different things here too.
"""

import hashlib
from collections.abc import Sequence
from typing import Self

POISON = -1


class Cell:
    """What is kept of one token. before: of the token before it; None at the start of a sequence.

    sound: neither this nor anything before it is poison.
    """

    __slots__ = ("before", "digest", "sound", "token")

    def __init__(self, token: int, before: Self | None) -> None:
        self.token = token
        self.before = before
        self.sound: bool = token != POISON and (before is None or before.sound)
        text = _digest(before) + token.to_bytes(8, "little", signed=True)
        self.digest = hashlib.blake2b(text, digest_size=16).digest()

    def follows(self, other: Self | None) -> bool:
        """Whether the token was computed after these tokens, and after no others."""
        return _digest(self.before) == _digest(other)


def _digest(cell: Cell | None) -> bytes:
    return b"" if cell is None else cell.digest


def tokens_of(cell: Cell | None) -> list[int]:
    """The token and all those before it, in their order."""
    tokens = []
    while cell is not None:
        tokens.append(cell.token)
        cell = cell.before
    tokens.reverse()
    return tokens


Content = dict[int, Cell]
"""What one block holds, by the position inside it. A position without a cell was never written."""


class FakeMemory:
    """The blocks of the device. What nobody has overwritten stays, whoever owns the block."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._blocks: dict[int, Content] = {}

    def poison(self) -> Content:
        """What a block holds that nothing sensible was written to."""
        return {offset: Cell(POISON, None) for offset in range(self.block_size)}

    def get(self, block: int) -> Content:
        """What the block holds now, as a copy."""
        return dict(self._blocks.get(block, ()))

    def put(self, block: int, content: Content) -> None:
        """The whole block is overwritten."""
        self._blocks[block] = dict(content)

    def read(self, table: Sequence[int], length: int) -> Cell | None:
        """What the first positions of a table amount to; None if there are none.

        A position that was computed after other tokens than those that are found before it reads
        as poison.
        """
        last: Cell | None = None
        for position in range(length):
            block, offset = divmod(position, self.block_size)
            cell = self._blocks.get(table[block], {}).get(offset)
            assert cell is not None, (
                f"position {position} is read from block {table[block]} and was never written there"
            )
            last = cell if cell.follows(last) else Cell(POISON, last)
        return last

    def write(
        self, table: Sequence[int], start: int, tokens: Sequence[int], before: Cell | None
    ) -> Cell | None:
        """Compute these tokens at `start` and after. before: what the positions before amount to.

        Returns what all of them amount to.
        """
        for position, token in enumerate(tokens, start):
            block, offset = divmod(position, self.block_size)
            before = Cell(token, before)
            self._blocks.setdefault(table[block], {})[offset] = before
        return before
