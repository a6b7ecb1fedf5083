"""From a plan to tensors. The state that outlives a step is kept per seat.

Shape suffixes: T tokens of the step, S slices, B blocks of the longest sequence.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from jackfield.core.api import AttnBatch, ModelInputs
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.steps import StepPlan


class Batch(NamedTuple):
    """One step's inputs. lens_S: positions of each sequence after the step, on the host."""

    inputs: ModelInputs
    attention: AttnBatch
    lens_S: np.ndarray
    starts_S: np.ndarray
    ends_S: np.ndarray


class SeatTables:
    """Block tables, prompt lengths and last tokens per seat, and the tensors built from them."""

    def __init__(
        self, limits: Limits, block_size: int, device: torch.device, *, prompt_lens: bool
    ) -> None:
        max_blocks = -(-limits.max_model_len // block_size)
        self.last_token = torch.zeros(limits.max_seqs, dtype=torch.int64, device=device)
        self._tables = np.zeros((limits.max_seqs, max_blocks), dtype=np.int32)
        self._prompt_lens = np.zeros(limits.max_seqs, dtype=np.int64)
        self._uses_prompt_lens = prompt_lens
        self._block_size = block_size
        self._device = device

    def update(self, plan: StepPlan) -> None:
        """Apply joins and new blocks."""
        for join in plan.joins:
            self._prompt_lens[join.seat] = len(join.prompt)
        for seat, index, blocks in plan.blocks:
            self._tables[seat, index : index + len(blocks)] = blocks

    def prompt_len(self, seat: int) -> int:
        """Length of the prompt of the sequence on a seat."""
        return int(self._prompt_lens[seat])

    def build(self, plan: StepPlan) -> Batch:
        """Tensors of one step."""
        columns = np.array([part[1:4] for part in plan.slices], dtype=np.int64)
        seats_S, starts_S, lengths_S = columns[:, 0], columns[:, 1], columns[:, 2]
        ends_S = np.cumsum(lengths_S)
        lens_S = starts_S + lengths_S
        total = int(ends_S[-1])
        if total == len(seats_S):
            seats_T, positions_T = seats_S, starts_S
        else:
            seats_T = np.repeat(seats_S, lengths_S)
            positions_T = np.arange(total) + np.repeat(lens_S - ends_S, lengths_S)
        inputs = ModelInputs(
            self._ids(plan, seats_S, total),
            self._tensor(positions_T),
            self._tensor(self._prompt_lens[seats_T]) if self._uses_prompt_lens else None,
        )
        attention = self._attention(plan, seats_S, seats_T, positions_T, lens_S, ends_S)
        return Batch(inputs, attention, lens_S, ends_S - lengths_S, ends_S)

    def _ids(self, plan: StepPlan, seats_S: np.ndarray, total: int) -> Tensor:
        decodes = plan.num_decodes
        fed = self.last_token.index_select(0, self._tensor(seats_S[:decodes]))
        if total == decodes:
            return fed
        known: list[int] = []
        for part in plan.slices[decodes:]:
            known.extend(part.tokens or ())
        rest = torch.tensor(known, dtype=torch.int64, device=self._device)
        return torch.cat((fed, rest)) if decodes else rest

    def _attention(
        self,
        plan: StepPlan,
        seats_S: np.ndarray,
        seats_T: np.ndarray,
        positions_T: np.ndarray,
        lens_S: np.ndarray,
        ends_S: np.ndarray,
    ) -> AttnBatch:
        size = self._block_size
        longest = int(lens_S.max())
        tables_SB = self._tables[seats_S, : -(-longest // size)]
        blocks_T = self._tables[seats_T, positions_T // size]
        slots_T = blocks_T.astype(np.int64) * size + positions_T % size
        query_start_S1 = np.zeros(len(ends_S) + 1, dtype=np.int32)
        query_start_S1[1:] = ends_S
        return AttnBatch(
            query_start_S1=self._tensor(query_start_S1),
            lens_S=self._tensor(lens_S.astype(np.int32)),
            block_tables_SB=self._tensor(np.ascontiguousarray(tables_SB)),
            slots_T=self._tensor(slots_T),
            num_decodes=_leading_singles(plan),
            max_query_len=max(part.length for part in plan.slices),
            max_len=longest,
        )

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)


def _leading_singles(plan: StepPlan) -> int:
    """Slices of one token at the front: all that feed on the device, and short ones after them."""
    count = plan.num_decodes
    for part in plan.slices[count:]:
        if part.length != 1:
            break
        count += 1
    return count
