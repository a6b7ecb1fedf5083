"""How the sequence on each seat is sampled, as columns that steps pick rows of.

Shape suffixes: R rows that are sampled.
"""

from typing import NamedTuple

import numpy as np

from jackfield.core.engine.steps import Join


class RowParams(NamedTuple):
    """The columns of some rows."""

    temperature_R: np.ndarray
    top_p_R: np.ndarray
    min_p_R: np.ndarray
    top_k_R: np.ndarray
    seeds_R: np.ndarray

    @property
    def all_greedy(self) -> bool:
        """Whether nothing is drawn."""
        return not self.temperature_R.any()

    @property
    def filtered(self) -> bool:
        """Whether some row that is drawn is drawn from a part of the vocabulary."""
        some = (self.top_k_R > 0) | (self.top_p_R < 1) | (self.min_p_R > 0)
        return bool((some & (self.temperature_R > 0)).any())


class SeatParams:
    """One entry per seat; what an empty seat holds means nothing."""

    def __init__(self, max_seqs: int) -> None:
        self._floats = np.zeros((3, max_seqs), dtype=np.float32)
        self._top_k = np.zeros(max_seqs, dtype=np.int32)
        self._seeds = np.zeros(max_seqs, dtype=np.int64)

    def join(self, join: Join) -> None:
        """A sequence takes a seat."""
        params, seat = join.params, join.seat
        temperature = 0.0 if params.greedy else params.temperature
        self._floats[:, seat] = (temperature, params.top_p, params.min_p)
        self._top_k[seat] = max(params.top_k, 0)
        self._seeds[seat] = join.seed

    def of(self, seats_R: np.ndarray) -> RowParams:
        """The settings of these seats."""
        temperature_R, top_p_R, min_p_R = self._floats[:, seats_R]
        return RowParams(
            temperature_R, top_p_R, min_p_R, self._top_k[seats_R], self._seeds[seats_R]
        )
