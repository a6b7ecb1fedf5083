"""Drives an executor without an engine, one plan after another."""

from collections.abc import Sequence

from jackfield.core.api import SamplingParams
from jackfield.core.engine.steps import BlockUpdate, Executor, Join, Slice, StepPlan
from jackfield.core.kv.transfers import BlockCopy

GREEDY = SamplingParams(temperature=0.0)


class ByHand:
    """Makes the plans that a test asks for. The handle of a sequence is its seat."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._ends: dict[int, int] = {}
        self._leaves: list[int] = []
        self._number = -1

    def begin(
        self,
        seat: int,
        prompt: Sequence[int],
        blocks: Sequence[int],
        *,
        start: int = 0,
        copies: Sequence[BlockCopy] = (),
    ) -> int:
        """A sequence takes the seat and computes its prompt from `start` on; its first token."""
        join = Join(seat, seat, GREEDY, 0, prompt, [], frozenset(), ())
        part = Slice(seat, seat, start, len(prompt) - start, prompt[start:], 1, False)
        self._ends[seat] = len(prompt)
        table = BlockUpdate(seat, 0, blocks)
        plan = self._plan(joins=[join], slices=[part], blocks=[table], copies=copies)
        return self._run(plan)[0]

    def decode(self, seat: int, *more: BlockUpdate) -> int:
        """The next token of a seat, whose table gets longer as told."""
        part = Slice(seat, seat, self._ends[seat], 1, None, 1, False)
        self._ends[seat] += 1
        return self._run(self._plan(slices=[part], num_decodes=1, blocks=more))[0]

    def copy(self, *copies: tuple[int, int]) -> None:
        """A step that only copies blocks: source, target."""
        self._run(self._plan(copies=[BlockCopy(*copy) for copy in copies]))

    def leave(self, seat: int) -> None:
        """The next plan says that the seat is empty."""
        self._leaves.append(seat)

    def _plan(
        self,
        *,
        slices: Sequence[Slice] = (),
        num_decodes: int = 0,
        joins: Sequence[Join] = (),
        blocks: Sequence[BlockUpdate] = (),
        copies: Sequence[BlockCopy] = (),
    ) -> StepPlan:
        self._number += 1
        leaves, self._leaves = self._leaves, []
        return StepPlan(
            self._number,
            list(slices),
            num_decodes,
            leaves,
            list(joins),
            list(blocks),
            list(copies),
        )

    def _run(self, plan: StepPlan) -> Sequence[int]:
        ticket = self._executor.forward(plan)
        self._executor.sample(ticket, {})
        return self._executor.collect(ticket).tokens
