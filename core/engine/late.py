"""What is only known when the token before is known: it binds at sampling."""

from collections.abc import Sequence
from typing import Protocol


class LateBinder(Protocol):
    """Decides which ids the next token of one request must not be."""

    def banned(self, output: Sequence[int]) -> Sequence[int]:
        """Called once per sampled token, with the whole answer so far; ids to mask."""


class BannedSequences:
    """Token sequences that never appear in full: the last id of each is masked when it would."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self._sequences = [tuple(sequence) for sequence in sequences]

    def banned(self, output: Sequence[int]) -> list[int]:
        """Last ids of all sequences whose beginning ends the answer so far."""
        return [
            sequence[-1]
            for sequence in self._sequences
            if tuple(output[len(output) - len(sequence) + 1 :]) == sequence[:-1]
        ]
