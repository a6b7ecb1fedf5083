"""What plans say of each seat, on the host: blocks, length of the prompt, how it is sampled."""

import numpy as np

from jackfield.core.engine.planner import Limits
from jackfield.core.engine.seat_params import SeatParams
from jackfield.core.engine.steps import StepPlan


class SeatTables:
    """One row per seat. Changed entries of block tables are those a device has not been told.

    num_joins: so far; while it stays, tables only get longer.
    """

    def __init__(self, limits: Limits, block_size: int) -> None:
        max_blocks = -(-limits.max_model_len // block_size)
        self.blocks_PB = np.zeros((limits.max_seqs, max_blocks), dtype=np.int32)
        self.params = SeatParams(limits.max_seqs)
        self.prompt_lens_P = np.zeros(limits.max_seqs, dtype=np.int64)
        self.num_joins = 0
        self._first_P = np.full(limits.max_seqs, max_blocks, dtype=np.int64)
        self._end_P = np.zeros(limits.max_seqs, dtype=np.int64)

    def update(self, plan: StepPlan) -> None:
        """Apply joins and new blocks."""
        self.num_joins += len(plan.joins)
        for join in plan.joins:
            self.prompt_lens_P[join.seat] = len(join.prompt)
            self.params.join(join)
        for seat, index, blocks in plan.blocks:
            end = index + len(blocks)
            self.blocks_PB[seat, index:end] = blocks
            self._first_P[seat] = min(self._first_P[seat], index)
            self._end_P[seat] = max(self._end_P[seat], end)

    def changed(self, seats_S: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """First changed entry of each seat, how many, and the entries; they are known from now."""
        first_S = self._first_P[seats_S]
        counts_S = np.maximum(self._end_P[seats_S] - first_S, 0)
        rows = counts_S.nonzero()[0].tolist()
        found = []
        for row in rows:
            seat, first = seats_S[row], first_S[row]
            found.append(self.blocks_PB[seat, first : first + counts_S[row]])
        told = seats_S[rows]
        self._first_P[told] = self.blocks_PB.shape[1]
        self._end_P[told] = 0
        return first_S, counts_S, found
