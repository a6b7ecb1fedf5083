"""A step's tensors where they are made on the host, as on a CPU.

Shape suffixes: T tokens of the step, S slices, R rows that are sampled, P seats.
"""

import numpy as np
import torch
from torch import Tensor

from jackfield.core.api import AttnBatch, ModelInputs, SampleBatch
from jackfield.core.engine.batch import Batch, Columns, Rows, extents, leading_singles, sampled
from jackfield.core.engine.seat_tables import SeatTables
from jackfield.core.engine.steps import StepPlan


class HostInputs:
    """Computed with numpy, whose arrays become tensors without a copy."""

    def __init__(
        self, tables: SeatTables, block_size: int, device: torch.device, *, prompt_lens: bool
    ) -> None:
        max_seqs = len(tables.blocks_PB)
        self._last_token_P = torch.zeros(max_seqs, dtype=torch.int64, device=device)
        self._tables = tables
        self._uses_prompt_lens = prompt_lens
        self._block_size = block_size
        self._device = device

    def feed(self, tokens_R: Tensor, rows: Rows) -> None:
        """These tokens are the last ones of their seats."""
        tokens_R = torch.where(tokens_R < 0, -1 - tokens_R, tokens_R)
        self._last_token_P.index_copy_(0, rows.seats_R, tokens_R)

    def build(self, plan: StepPlan) -> Batch:
        """Tensors of one step."""
        columns = Columns.of(plan.slices)
        seats_S, starts_S, lengths_S, ends_S, lens_S = columns
        total = int(ends_S[-1])
        if total == len(seats_S):
            seats_T, positions_T = seats_S, starts_S
        else:
            seats_T = np.repeat(seats_S, lengths_S)
            positions_T = np.arange(total) + np.repeat(lens_S - ends_S, lengths_S)
        prompt_lens_T = self._tables.prompt_lens_P[seats_T] if self._uses_prompt_lens else None
        inputs = ModelInputs(
            self._ids(plan, seats_S, total),
            self._tensor(positions_T),
            None if prompt_lens_T is None else self._tensor(prompt_lens_T),
        )
        attention = self._attention(plan, columns, seats_T, positions_T)
        return Batch(inputs, attention, self._rows(plan, columns))

    def _ids(self, plan: StepPlan, seats_S: np.ndarray, total: int) -> Tensor:
        decodes = plan.num_decodes
        fed = self._last_token_P.index_select(0, self._tensor(seats_S[:decodes]))
        if total == decodes:
            return fed
        known: list[int] = []
        for part in plan.slices[decodes:]:
            known.extend(part.tokens or ())
        rest = torch.tensor(known, dtype=torch.int64, device=self._device)
        return torch.cat((fed, rest)) if decodes else rest

    def _attention(
        self, plan: StepPlan, columns: Columns, seats_T: np.ndarray, positions_T: np.ndarray
    ) -> AttnBatch:
        size, blocks_PB = self._block_size, self._tables.blocks_PB
        longest = int(columns.lens_S.max())
        tables_SB = blocks_PB[columns.seats_S, : -(-longest // size)]
        blocks_T = blocks_PB[seats_T, positions_T // size]
        slots_T = blocks_T.astype(np.int64) * size + positions_T % size
        decodes = leading_singles(plan)
        return AttnBatch(
            query_start_S1=self._tensor(columns.query_start()),
            lens_S=self._tensor(columns.lens_S.astype(np.int32)),
            block_tables_SB=self._tensor(tables_SB),
            slots_T=self._tensor(slots_T),
            num_decodes=decodes,
            max_query_len=int(columns.lengths_S.max()),
            max_len=longest,
            prompts=extents(plan, columns, decodes),
        )

    def _rows(self, plan: StepPlan, columns: Columns) -> Rows | None:
        rows = sampled(plan)
        if not rows:
            return None
        seats_R = columns.seats_S[rows]
        params = self._tables.params.of(seats_R)
        batch = SampleBatch(
            temperature_R=self._tensor(params.temperature_R),
            top_k_R=self._tensor(params.top_k_R),
            top_p_R=self._tensor(params.top_p_R),
            min_p_R=self._tensor(params.min_p_R),
            seeds_R=self._tensor(params.seeds_R),
            positions_R=self._tensor(columns.lens_S[rows]),
            all_greedy=params.all_greedy,
            filtered=params.filtered,
        )
        every = len(rows) == int(columns.ends_S[-1])
        tokens_R = None if every else self._tensor(columns.ends_S[rows] - 1)
        return Rows(batch, self._tensor(seats_R), tokens_R)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)
