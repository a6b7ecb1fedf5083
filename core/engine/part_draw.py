"""Draws tokens of rows whose logits ranks hold in parts: they exchange eight bytes a row.

Shape suffixes: R rows that are sampled, S ranks, D model width.
"""

from typing import Self

import torch
from torch import Tensor

from jackfield.core.api import (
    NO_TOKEN,
    AllGather,
    Best,
    Model,
    Operations,
    PartsLogits,
    SampleBatch,
    SamplePart,
)

WORD = 32
NOT_A_NUMBER = 0x7FFFFFFF
"""The largest key of a value."""


class PartDraw:
    """Of rows that nobody edits or scores."""

    def __init__(self, model: PartsLogits, best: SamplePart, gather: AllGather) -> None:
        self._model, self._best, self._gather = model, best, gather

    @classmethod
    def of(cls, model: Model, operations: Operations) -> Self | None:
        """None where there is one rank, or somebody does not know of parts."""
        best, gather = operations.sample_part, operations.all_gather
        if best is None or gather is None or not isinstance(model, PartsLogits):
            return None
        return cls(model, best, gather)

    def draws(self, batch: SampleBatch) -> bool:
        """Whether it can, of such rows."""
        return self._best.draws(batch)

    def __call__(self, hidden_RD: Tensor, batch: SampleBatch) -> Tensor:
        """As `Sample` of all logits; the same on every rank. May be captured in a CUDA graph."""
        logits_RP, first = self._model.logits_part(hidden_RD)
        keys_SR = self._gather(in_order(self._best(logits_RP, first, batch)))
        return tokens_of(keys_SR.amax(0))


def in_order(best: Best) -> Tensor:
    """int64 that are larger for better tokens and, of equally good ones, for lower ids. Both zeros
    are equal, and what is no number is best."""
    bits_R = (best.value_R + 0.0).view(torch.int32)
    value_R = (bits_R ^ ((bits_R >> (WORD - 1)) & NOT_A_NUMBER)).long()
    value_R = value_R.masked_fill(best.value_R.isnan(), NOT_A_NUMBER)
    return (value_R << WORD) | (best.token_R ^ NO_TOKEN)


def tokens_of(keys_R: Tensor) -> Tensor:
    """As `Sample` gives them."""
    tokens_R = (keys_R & NO_TOKEN) ^ NO_TOKEN
    return torch.where(keys_R >> WORD == NOT_A_NUMBER, -1 - tokens_R, tokens_R)
