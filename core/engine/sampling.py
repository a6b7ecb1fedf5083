"""Draws tokens for the rows of a step. What a sequence wants is kept per seat.

Shape suffixes: R rows that are sampled, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import Operations, SampleBatch
from jackfield.core.engine.edits import MASKED, Edits
from jackfield.core.engine.scoring import Scores, score
from jackfield.core.engine.steps import Join, Late, Slice

EDITED = torch.float32
"""The type of logits that are edited."""


class Scored(NamedTuple):
    """Scores, and the rows of the step that they are of."""

    rows: list[int]
    scores: Scores


class Barred(NamedTuple):
    """Rows whose logits were edited, and, on the device, from which of them nothing was left."""

    rows: list[int]
    empty: Tensor


class Drawn(NamedTuple):
    """Tokens on the device. Where the logit of one is no number, it is -1 - token."""

    tokens_R: Tensor
    scored: Scored | None = None
    barred: Barred | None = None


class Sampler:
    """Applies a step's edits and draws. The draw depends on logits, seed and position only.

    Nothing here waits for the device.
    """

    def __init__(self, operations: Operations, vocab_size: int, device: torch.device) -> None:
        self._sample = operations.sample
        self._vocab_size = vocab_size
        self._device = device
        self._edits: dict[int, Edits] = {}
        self._tops: dict[int, int] = {}
        self._late: set[int] = set()

    def join(self, join: Join) -> None:
        """A sequence takes a seat."""
        params, seat = join.params, join.seat
        self.leave(seat)
        if Edits.wanted(join):
            self._edits[seat] = Edits(join, self._vocab_size, self._device)
        if params.logprobs is not None:
            self._tops[seat] = params.logprobs
        if join.binds_late:
            self._late.add(seat)

    def leave(self, seat: int) -> None:
        """Nobody sits there any more."""
        self._edits.pop(seat, None)
        self._tops.pop(seat, None)
        self._late.discard(seat)

    def is_plain(self, seats: Sequence[int]) -> bool:
        """Whether these rows need their logits and a draw, and nothing else."""
        special = self._edits.keys() | self._tops.keys() | self._late
        return not special or special.isdisjoint(seats)

    def draw(self, logits_RV: Tensor, batch: SampleBatch) -> Tensor:
        """One token per row, of rows that nobody edits. May be captured in a CUDA graph."""
        return self._sample(logits_RV, batch)

    def edit_and_draw(
        self,
        logits_RV: Tensor,
        batch: SampleBatch,
        slices: Sequence[Slice],
        sampled: Sequence[int],
        late: Late,
    ) -> Drawn:
        """The same with edits and scores. sampled: tokens that each sequence has drawn before."""
        seats = [part.seat for part in slices]
        wanted = [row for row, seat in enumerate(seats) if seat in self._tops]
        raw_RV = logits_RV[wanted].clone() if wanted else None
        logits_RV = logits_RV.to(EDITED) if self._edits or late else logits_RV
        barred = self._edit(logits_RV, slices, sampled, late)
        tokens_R = self.draw(logits_RV, batch)
        plain_R = torch.where(tokens_R < 0, -1 - tokens_R, tokens_R)
        for row, seat in enumerate(seats):
            if seat in self._edits:
                self._edits[seat].sampled(plain_R[row : row + 1])
        if raw_RV is None:
            return Drawn(tokens_R, None, barred)
        scores = score(raw_RV, plain_R[wanted], [self._tops[seats[row]] for row in wanted])
        return Drawn(tokens_R, Scored(wanted, scores), barred)

    def _edit(
        self, logits_RV: Tensor, slices: Sequence[Slice], sampled: Sequence[int], late: Late
    ) -> Barred | None:
        rows, empty = [], []
        for row, part in enumerate(slices):
            edits, banned = self._edits.get(part.seat), late.get(part.handle)
            if edits is None and not banned:
                continue
            if edits is not None:
                edits.apply(logits_RV[row], sampled[row])
            if banned:
                logits_RV[row, list(banned)] = MASKED
            is_empty = (logits_RV[row] <= MASKED).all()
            logits_RV[row].masked_fill_(is_empty, 0.0)
            rows.append(row)
            empty.append(is_empty)
        return Barred(rows, torch.stack(empty)) if rows else None
