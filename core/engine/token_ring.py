"""Where steps in flight leave their tokens, so that none waits until those of another are copied.

Shape suffix: R rows that are sampled.
"""

import numpy as np
import torch
from torch import Tensor

from jackfield.core.engine.downloads import Download

SLOTS = 8
"""More than the steps in flight, or else a step waits for the tokens of the one so far ahead."""
NOBODYS = SLOTS
"""One more slot, for what is run without being a step."""


class TokenRing:
    """One row of tokens per slot. Which slot is a step's is told with its news."""

    def __init__(self, max_rows: int, device: torch.device) -> None:
        self._tokens = torch.zeros((SLOTS + 1, max_rows), dtype=torch.int64, device=device)
        self._downloads: list[Download | None] = [None] * SLOTS
        self._last = SLOTS - 1

    def take(self) -> int:
        """The next slot, once nobody copies from it any more."""
        self._last = (self._last + 1) % SLOTS
        before = self._downloads[self._last]
        if before is not None:
            before.settle()
            self._downloads[self._last] = None
        return self._last

    @staticmethod
    def told(slot: int) -> np.ndarray:
        """A slot as part of a step's news."""
        return np.array([slot], dtype=np.int64)

    def write(self, tokens_R: Tensor, slot_1: Tensor) -> None:
        """Leave tokens in a slot that only the device knows. May be captured."""
        rows = self._tokens[:, : len(tokens_R)]
        rows.index_copy_(0, slot_1, tokens_R.unsqueeze(0))

    def tokens(self, slot: int, count: int) -> Tensor:
        """What a step left, or will leave."""
        return self._tokens[slot, :count]

    def copied_by(self, slot: int, download: Download) -> None:
        """Who copies from it."""
        self._downloads[slot] = download
