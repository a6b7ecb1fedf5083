"""Runs a model on plans: forward, sample, collect.

Shape suffixes: T tokens of the step, R rows that are sampled, D model width, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import (
    AttnStep,
    KvLayer,
    LayerGroup,
    Model,
    Operations,
)
from jackfield.core.engine.batch import Batch, SeatTables
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.sampling import Drawn, Sampler
from jackfield.core.engine.scoring import score
from jackfield.core.engine.steps import Late, Slice, StepPlan, StepResult, TokenScore
from jackfield.core.kv.copier import BlockCopier

SCORE_ROWS = 64
NOTHING_LEFT = "its masks leave no token that could be sampled"
NO_NUMBERS = (
    "the model computed logits that are no numbers; the checkpoint holds such weights, or they "
    "overflow in this dtype"
)


class LoadedModel(NamedTuple):
    """A model with the operations it runs on and the memory it writes to."""

    model: Model
    operations: Operations
    layers: Sequence[KvLayer]
    groups: Sequence[LayerGroup]
    vocab_size: int
    uses_prompt_lens: bool


@dataclass(slots=True)
class Ticket:
    """A step under way. `drawn` is there once it was sampled."""

    plan: StepPlan
    slices: list[Slice]
    sampled: list[int]
    logits_RV: Tensor | None
    prompt_scores: dict[int, dict[int, TokenScore]]
    drawn: Drawn | None = None


class Runner:
    """One device's forward pass. Steps run in the order in which they come."""

    def __init__(
        self,
        loaded: LoadedModel,
        limits: Limits,
        block_size: int,
        device: torch.device,
        copier: BlockCopier | None = None,
    ) -> None:
        self._loaded = loaded
        self._tables = SeatTables(limits, block_size, device, prompt_lens=loaded.uses_prompt_lens)
        self._sampler = Sampler(loaded.operations, limits.max_seqs, loaded.vocab_size, device)
        self._group_of = {
            layer: index for index, group in enumerate(loaded.groups) for layer in group.layers
        }
        self._device = device
        self._copier = copier or BlockCopier(loaded.layers, device)
        self._prompts: dict[int, Sequence[int]] = {}
        self._prompt_tops: dict[int, int] = {}

    def forward(self, plan: StepPlan) -> Ticket:
        """Compute the step up to its logits."""
        if plan.copies:
            self._copier.copy(plan.copies)
        self._seat(plan)
        batch = self._tables.build(plan)
        attend = _Attention(self._loaded, batch, self._group_of)
        hidden_TD = self._loaded.model.forward(batch.inputs, attend)
        rows = [index for index, part in enumerate(plan.slices) if part.samples]
        slices = [plan.slices[index] for index in rows]
        logits_RV = self._logits(hidden_TD, batch, rows, len(plan.slices)) if rows else None
        sampled = [part.start + part.length - self._tables.prompt_len(part.seat) for part in slices]
        return Ticket(plan, slices, sampled, logits_RV, self._prompt_scores(plan, batch, hidden_TD))

    def logits(self, plan: StepPlan) -> Tensor:
        """Of every position of the step, `[T, V]`. Nothing is sampled."""
        self._seat(plan)
        batch = self._tables.build(plan)
        attend = _Attention(self._loaded, batch, self._group_of)
        model = self._loaded.model
        return model.logits(model.forward(batch.inputs, attend))

    def _seat(self, plan: StepPlan) -> None:
        for seat in plan.leaves:
            self._sampler.leave(seat)
            self._prompts.pop(seat, None)
        for join in plan.joins:
            self._sampler.join(join)
            if join.params.prompt_logprobs is not None:
                self._prompts[join.seat] = join.prompt
                self._prompt_tops[join.seat] = join.params.prompt_logprobs
        self._tables.update(plan)

    def _logits(self, hidden_TD: Tensor, batch: Batch, rows: list[int], num_slices: int) -> Tensor:
        if hidden_TD.shape[0] == num_slices == len(rows):
            return self._loaded.model.logits(hidden_TD)
        last = torch.from_numpy(batch.ends_S[rows] - 1).to(self._device)
        return self._loaded.model.logits(hidden_TD.index_select(0, last))

    def _prompt_scores(
        self, plan: StepPlan, batch: Batch, hidden_TD: Tensor
    ) -> dict[int, dict[int, TokenScore]]:
        return {
            part.handle: self._score_prompt(part, hidden_TD[batch.starts_S[i] : batch.ends_S[i]])
            for i, part in enumerate(plan.slices)
            if part.scores
        }

    def _score_prompt(self, part: Slice, hidden_TD: Tensor) -> dict[int, TokenScore]:
        """Position -> score; the logits of a position score the token after it."""
        prompt, top = self._prompts[part.seat], self._prompt_tops[part.seat]
        end = min(part.start + part.length, len(prompt) - 1)
        found: dict[int, TokenScore] = {}
        for start in range(part.start, end, SCORE_ROWS):
            stop = min(start + SCORE_ROWS, end)
            logits = self._loaded.model.logits(hidden_TD[start - part.start : stop - part.start])
            scores = score(logits, prompt[start + 1 : stop + 1], [top] * (stop - start))
            found.update(zip(range(start + 1, stop + 1), scores, strict=True))
        return found

    def sample(self, ticket: Ticket, late: Late) -> None:
        """Draw the step's tokens and keep them as the seats' last."""
        if ticket.logits_RV is None:
            return
        ticket.drawn = self._sampler.draw(ticket.logits_RV, ticket.slices, ticket.sampled, late)
        seats = torch.tensor([part.seat for part in ticket.slices], device=self._device)
        self._tables.last_token.index_copy_(0, seats, ticket.drawn.tokens_R)
        ticket.logits_RV = None

    def collect(self, ticket: Ticket) -> StepResult:
        """The step's tokens on the host."""
        counts = [part.samples for part in ticket.plan.slices]
        if ticket.drawn is None:
            return StepResult([], counts, prompt_scores=ticket.prompt_scores)
        tokens = ticket.drawn.tokens_R.tolist()
        failures = self._failures(ticket.slices, ticket.drawn)
        return StepResult(tokens, counts, ticket.drawn.scores, ticket.prompt_scores, failures)

    def _failures(self, slices: Sequence[Slice], drawn: Drawn) -> dict[int, str]:
        unsound = drawn.unsound_R.tolist()
        found = {slices[row].handle: NO_NUMBERS for row, bad in enumerate(unsound) if bad}
        return found | {slices[row].handle: NOTHING_LEFT for row in drawn.impossible}


class _Attention:
    """Attention of one step, as the model's argument."""

    def __init__(self, loaded: LoadedModel, batch: Batch, group_of: Mapping[int, int]) -> None:
        self._kernel = loaded.operations.attention
        self._layers = loaded.layers
        self._group_of = group_of
        self._steps: list[AttnStep] = [
            self._kernel.prepare(batch.attention, None) for _ in loaded.groups
        ]

    def __call__(self, layer: int, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor) -> Tensor:
        step, where = self._steps[self._group_of[layer]], self._layers[layer]
        self._kernel.write(k_TKH, v_TKH, where, step)
        out_TNH = torch.empty(q_TNH.shape, dtype=q_TNH.dtype, device=q_TNH.device)
        return self._kernel.forward(q_TNH, where, step, out_TNH)
