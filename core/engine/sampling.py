"""Draws tokens for the rows of a step. What a sequence wants is kept per seat.

Shape suffixes: R rows that are sampled, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from jackfield.core.api import Operations, SampleBatch
from jackfield.core.engine.edits import MASKED, Edits
from jackfield.core.engine.scoring import score
from jackfield.core.engine.steps import Join, Late, Slice, TokenScore


class Drawn(NamedTuple):
    """Tokens on the device, scores by row, and rows from which nothing could be drawn.

    unsound_R: on the device, whether the logit of the token is no number.
    """

    tokens_R: Tensor
    scores: dict[int, TokenScore]
    impossible: list[int]
    unsound_R: Tensor


class Sampler:
    """Applies a step's edits and draws. The draw depends on logits, seed and position only."""

    def __init__(
        self, operations: Operations, max_seqs: int, vocab_size: int, device: torch.device
    ) -> None:
        self._operations = operations
        self._vocab_size = vocab_size
        self._device = device
        self._floats = np.zeros((max_seqs, 3), dtype=np.float32)
        self._integers = np.zeros((max_seqs, 2), dtype=np.int64)
        self._edits: dict[int, Edits] = {}
        self._tops: dict[int, int] = {}

    def join(self, join: Join) -> None:
        """A sequence takes a seat."""
        params, seat = join.params, join.seat
        temperature = 0.0 if params.greedy else params.temperature
        self._floats[seat] = (temperature, params.top_p, params.min_p)
        self._integers[seat] = (max(params.top_k, 0), join.seed)
        self.leave(seat)
        if Edits.wanted(join):
            self._edits[seat] = Edits(join, self._vocab_size, self._device)
        if params.logprobs is not None:
            self._tops[seat] = params.logprobs

    def leave(self, seat: int) -> None:
        """Nobody sits there any more."""
        self._edits.pop(seat, None)
        self._tops.pop(seat, None)

    def draw(
        self, logits_RV: Tensor, slices: Sequence[Slice], sampled: Sequence[int], late: Late
    ) -> Drawn:
        """One token per row; `sampled`: how many tokens each sequence has drawn before."""
        seats = [part.seat for part in slices]
        raw = {row: logits_RV[row].clone() for row, s in enumerate(seats) if s in self._tops}
        impossible = self._edit(logits_RV, slices, sampled, late)
        tokens_R = self._operations.sample(logits_RV, self._batch(slices))
        for row, seat in enumerate(seats):
            if seat in self._edits:
                self._edits[seat].sampled(tokens_R[row : row + 1])
        unsound_R = logits_RV.gather(1, tokens_R.unsqueeze(1)).isnan().squeeze(1)
        return Drawn(tokens_R, self._score(raw, tokens_R, seats), impossible, unsound_R)

    def _edit(
        self, logits_RV: Tensor, slices: Sequence[Slice], sampled: Sequence[int], late: Late
    ) -> list[int]:
        impossible = []
        for row, part in enumerate(slices):
            edits, banned = self._edits.get(part.seat), late.get(part.handle)
            if edits is None and not banned:
                continue
            if edits is not None:
                edits.apply(logits_RV[row], sampled[row])
            if banned:
                logits_RV[row, list(banned)] = MASKED
            if bool((logits_RV[row] <= MASKED).all()):
                impossible.append(row)
                logits_RV[row].zero_()
        return impossible

    def _batch(self, slices: Sequence[Slice]) -> SampleBatch:
        seats = np.array([part.seat for part in slices])
        floats, integers = self._floats[seats], self._integers[seats]
        positions = np.array([part.start + part.length for part in slices], dtype=np.int64)
        return SampleBatch(
            temperature_R=self._tensor(floats[:, 0]),
            top_k_R=self._tensor(integers[:, 0]),
            top_p_R=self._tensor(floats[:, 1]),
            min_p_R=self._tensor(floats[:, 2]),
            seeds_R=self._tensor(integers[:, 1]),
            positions_R=self._tensor(positions),
            all_greedy=not floats[:, 0].any(),
        )

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)

    def _score(
        self, raw: dict[int, Tensor], tokens_R: Tensor, seats: Sequence[int]
    ) -> dict[int, TokenScore]:
        if not raw:
            return {}
        rows = list(raw)
        tokens = tokens_R[rows].tolist()
        tops = [self._tops[seats[row]] for row in rows]
        found = score(torch.stack(list(raw.values())), tokens, tops)
        return dict(zip(rows, found, strict=True))
