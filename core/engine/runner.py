"""Runs a model on plans: forward, sample, collect.

Shape suffixes: T tokens of the step, R rows that are sampled, D model width, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import (
    KvLayer,
    LayerGroup,
    Model,
    Operations,
    SampleBatch,
)
from jackfield.core.engine.attend import StepAttention
from jackfield.core.engine.batch import Batch, Columns, Rows, StepInputs
from jackfield.core.engine.device_inputs import DeviceInputs
from jackfield.core.engine.downloads import Download, Downloads, downloads_for
from jackfield.core.engine.graphs import (
    NO_SHORT_STEPS,
    DecodeGraphs,
    Outputs,
    ShortSteps,
    Sizes,
    padded_sizes,
)
from jackfield.core.engine.host_inputs import HostInputs
from jackfield.core.engine.part_draw import PartDraw
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.prompt_scores import Piece, PromptScores, read
from jackfield.core.engine.sampling import EDITED, Drawn, Sampler
from jackfield.core.engine.seat_tables import SeatTables
from jackfield.core.engine.steps import Late, Slice, StepPlan, StepResult, TokenScore
from jackfield.core.kv.copier import BlockCopier

SAMPLE = "sample"
NOTHING_LEFT = "its masks leave no token that could be sampled"
NO_NUMBERS = (
    "the model computed logits that are no numbers; the checkpoint holds such weights, or they "
    "overflow in this dtype"
)


class LoadedModel(NamedTuple):
    """A model with the operations it runs on and the memory it writes to.

    uncapturable: operations that cannot be part of a CUDA graph, by name. short_steps: as in
    `KvLayout`.
    """

    model: Model
    operations: Operations
    layers: Sequence[KvLayer]
    groups: Sequence[LayerGroup]
    vocab_size: int
    uses_prompt_lens: bool
    uncapturable: frozenset[str] = frozenset()
    short_steps: ShortSteps = NO_SHORT_STEPS


@dataclass(slots=True)
class Ticket:
    """A step under way. `drawn` is there once it was sampled, and its download once it began."""

    plan: StepPlan
    slices: list[Slice]
    rows: Rows | None
    logits_RV: Tensor | None
    pieces: list[Piece] = field(default_factory=list)
    drawn: Drawn | None = None
    download: Download | None = None


class Runner:
    """One device's forward pass. Steps run in the order in which they come."""

    def __init__(
        self,
        loaded: LoadedModel,
        limits: Limits,
        block_size: int,
        device: torch.device,
        copier: BlockCopier | None = None,
        downloads: Downloads | None = None,
    ) -> None:
        """copier: None = of its own. downloads: None = those that suit the device."""
        self._loaded = loaded
        self._device = device
        self._tables = SeatTables(limits, block_size)
        self._sampler = Sampler(loaded.operations, loaded.vocab_size, device)
        self._parts = PartDraw.of(loaded.model, loaded.operations)
        self._prompt_scores = PromptScores(loaded.model.logits, device)
        self._downloads = downloads or downloads_for(limits.max_seqs, device)
        self._group_of = {
            layer: index for index, group in enumerate(loaded.groups) for layer in group.layers
        }
        self._copier = copier or BlockCopier(loaded.layers, device)
        self._captures_sampling = SAMPLE not in loaded.uncapturable
        self._inputs: StepInputs
        self._graphs: DecodeGraphs | None = None
        make, lens = loaded.operations.step_inputs, loaded.uses_prompt_lens
        if make is None:
            self._inputs = HostInputs(self._tables, block_size, device, prompt_lens=lens)
            return
        inputs = DeviceInputs(self._tables, block_size, device, make, prompt_lens=lens)
        self._inputs = inputs
        if device.type == "cuda" and not loaded.uncapturable - {SAMPLE}:
            sizes = Sizes(
                padded_sizes(limits.max_seqs), limits.max_model_len, loaded.short_steps
            )
            self._graphs = DecodeGraphs(inputs, self._compute, sizes, device)

    def warm_up(self) -> None:
        """Prepare what would otherwise make the first steps slow."""
        if self._graphs is not None:
            with torch.inference_mode():
                self._graphs.warm_up(samples=self._captures_sampling)

    def close(self) -> None:
        """Give up what does not go with the tensors. No step comes afterwards."""
        if self._graphs is not None:
            self._graphs.close()
            self._graphs = None

    def forward(self, plan: StepPlan) -> Ticket:
        """Compute the step up to its logits, and its tokens, too, where one graph holds both."""
        if plan.copies:
            self._copier.copy(plan.copies)
        self._seat(plan)
        decodes = plan.num_decodes == len(plan.slices)
        if self._graphs is not None and decodes and self._graphs.fits(plan.num_decodes):
            return self._decode(plan, self._graphs)
        return self._eager(plan, self._inputs.build(plan))

    def _decode(self, plan: StepPlan, graphs: DecodeGraphs) -> Ticket:
        assert isinstance(self._inputs, DeviceInputs)
        arrays, shape = self._inputs.news(plan)
        plain = self._captures_sampling and self._sampler.is_plain(arrays.seats_S.tolist())
        found = graphs.find(shape, samples=plain)
        if found is None:
            return self._eager(plan, self._inputs.upload(arrays, shape))
        slot, count = graphs.run(found, arrays, shape), len(plan.slices)
        if found.logits_RV is not None:
            rows, logits_RV = _first(found.rows, count), found.logits_RV[:count]
            return Ticket(plan, plan.slices, rows, logits_RV)
        ticket = Ticket(plan, plan.slices, None, None)
        ticket.drawn = Drawn(graphs.ring.tokens(slot, count))
        ticket.download = self._downloads.start(ticket.drawn.tokens_R)
        graphs.ring.copied_by(slot, ticket.download)
        return ticket

    def _eager(self, plan: StepPlan, batch: Batch) -> Ticket:
        hidden_TD, rows = self._hidden(batch), batch.rows
        slices = [part for part in plan.slices if part.samples]
        ticket = Ticket(plan, slices, None, None)
        plain = self._sampler.is_plain([part.seat for part in slices])
        tokens_R = self._part_tokens(hidden_TD, rows) if plain else None
        if rows is None or tokens_R is None:
            ticket.rows, ticket.logits_RV = rows, self._logits(hidden_TD, rows)
        else:
            self._keep(ticket, Drawn(tokens_R), rows)
        if any(part.scores for part in plan.slices):
            ticket.pieces = self._score_prompts(plan, hidden_TD)
        return ticket

    def rehearse(self, plan: StepPlan, *, grouped: bool = True) -> None:
        """Run the operations of a step, as far as it goes without what they compute: nothing is
        fed to the next step, and nothing comes back. Tokens are drawn as the model gives its
        logits, and as they are once they were edited. grouped: whether decodes may share
        beginnings."""
        self._seat(plan)
        batch = self._inputs.build(plan)
        if not grouped:
            batch = batch._replace(attention=batch.attention._replace(shared=None))
        hidden_TD = self._hidden(batch)
        self._score_prompts(plan, hidden_TD)
        self._part_tokens(hidden_TD, batch.rows)
        logits_RV = self._logits(hidden_TD, batch.rows)
        if batch.rows is not None and logits_RV is not None:
            self._sampler.draw(logits_RV, batch.rows.batch)
            if logits_RV.dtype != EDITED:
                self._sampler.draw(logits_RV.to(EDITED), batch.rows.batch)

    def logits(self, plan: StepPlan) -> Tensor:
        """Of every position of the step, `[T, V]` in float32. Nothing is sampled."""
        self._seat(plan)
        hidden_TD = self._hidden(self._inputs.build(plan))
        return self._loaded.model.logits(hidden_TD).float()

    def _seat(self, plan: StepPlan) -> None:
        for seat in plan.leaves:
            self._sampler.leave(seat)
            self._prompt_scores.leave(seat)
        for join in plan.joins:
            self._sampler.join(join)
            self._prompt_scores.join(join)
        self._tables.update(plan)

    def _hidden(self, batch: Batch) -> Tensor:
        loaded = self._loaded
        attend = StepAttention(loaded.operations, loaded.layers, self._group_of, batch.attention)
        return loaded.model.forward(batch.inputs, attend)

    def _logits(self, hidden_TD: Tensor, rows: Rows | None) -> Tensor | None:
        if rows is None:
            return None
        return self._loaded.model.logits(_of_rows(hidden_TD, rows))

    def _part_tokens(self, hidden_TD: Tensor, rows: Rows | None) -> Tensor | None:
        """Of rows that nobody edits; None where they cannot be drawn from parts of logits."""
        if rows is None or self._parts is None or not self._parts.draws(rows.batch):
            return None
        return self._parts(_of_rows(hidden_TD, rows), rows.batch)

    def _compute(self, batch: Batch, samples: bool) -> Outputs:
        """What a graph captures."""
        hidden_TD, rows = self._hidden(batch), batch.rows
        assert rows is not None, "decodes always sample"
        tokens_R = self._part_tokens(hidden_TD, rows) if samples else None
        if tokens_R is None:
            logits_RV = self._logits(hidden_TD, rows)
            assert logits_RV is not None
            if not samples:
                return Outputs(logits_RV, None)
            tokens_R = self._sampler.draw(logits_RV, rows.batch)
        self._inputs.feed(tokens_R, rows)
        return Outputs(None, tokens_R)

    def _score_prompts(self, plan: StepPlan, hidden_TD: Tensor) -> list[Piece]:
        ends = Columns.of(plan.slices).ends_S.tolist()
        return [
            piece
            for part, end in zip(plan.slices, ends, strict=True)
            if part.scores
            for piece in self._prompt_scores.of(part, hidden_TD[end - part.length : end])
        ]

    def sample(self, ticket: Ticket, late: Late) -> None:
        """Draw the step's tokens and keep them as the seats' last."""
        logits_RV, rows = ticket.logits_RV, ticket.rows
        ticket.logits_RV = ticket.rows = None
        if ticket.drawn is not None or logits_RV is None or rows is None:
            return
        if not late and self._sampler.is_plain([part.seat for part in ticket.slices]):
            drawn = Drawn(self._sampler.draw(logits_RV, rows.batch))
        else:
            drawn = self._sampler.edit_and_draw(
                logits_RV, rows.batch, ticket.slices, self._sampled(ticket.slices), late
            )
        self._keep(ticket, drawn, rows)

    def _keep(self, ticket: Ticket, drawn: Drawn, rows: Rows) -> None:
        """These tokens are the seats' last, and go to the host."""
        ticket.drawn = drawn
        self._inputs.feed(drawn.tokens_R, rows)
        ticket.download = self._downloads.start(drawn.tokens_R)

    def _sampled(self, slices: Sequence[Slice]) -> list[int]:
        """How many tokens each sequence has drawn before."""
        lens = self._tables.prompt_lens_P
        return [part.start + part.length - int(lens[part.seat]) for part in slices]

    def collect(self, ticket: Ticket) -> StepResult:
        """The step's tokens on the host."""
        counts = [part.samples for part in ticket.plan.slices]
        prompt_scores = read(ticket.plan, ticket.pieces)
        if ticket.drawn is None or ticket.download is None:
            return StepResult([], counts, prompt_scores=prompt_scores)
        found = ticket.download.read()
        tokens = [-1 - token if token < 0 else token for token in found]
        failures = _failures(ticket.slices, found, ticket.drawn)
        return StepResult(tokens, counts, _scores(ticket.drawn), prompt_scores, failures)


def _of_rows(hidden_TD: Tensor, rows: Rows) -> Tensor:
    return hidden_TD if rows.tokens_R is None else hidden_TD.index_select(0, rows.tokens_R)


def _first(rows: Rows, count: int) -> Rows:
    """The rows that are no padding."""
    batch = rows.batch
    cut = SampleBatch(
        batch.temperature_R[:count],
        batch.top_k_R[:count],
        batch.top_p_R[:count],
        batch.min_p_R[:count],
        batch.seeds_R[:count],
        batch.positions_R[:count],
        batch.all_greedy,
        batch.filtered,
    )
    return Rows(cut, rows.seats_R[:count], None)


def _scores(drawn: Drawn) -> dict[int, TokenScore]:
    if drawn.scored is None:
        return {}
    return dict(zip(drawn.scored.rows, drawn.scored.scores.read(), strict=True))


def _failures(slices: Sequence[Slice], found: Sequence[int], drawn: Drawn) -> dict[int, str]:
    failed = {slices[row].handle: NO_NUMBERS for row, token in enumerate(found) if token < 0}
    if drawn.barred is not None:
        empty = drawn.barred.empty.tolist()
        for row, nothing_left in zip(drawn.barred.rows, empty, strict=True):
            if nothing_left:
                failed[slices[row].handle] = NOTHING_LEFT
    return failed
