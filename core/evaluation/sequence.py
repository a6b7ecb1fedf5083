"""One sequence in the pool of an engine that serves nobody, computed piece by piece.

Shape suffixes: T tokens of a piece, V vocabulary.
"""

from collections.abc import Sequence

from torch import Tensor

from jackfield.core.api import SamplingParams
from jackfield.core.assemble import Assembly
from jackfield.core.engine.steps import BlockUpdate, Join, Slice, StepPlan


class PagedSequence:
    """What is fed is stored in blocks as in serving, and read back from them by later pieces."""

    def __init__(self, assembly: Assembly) -> None:
        self._executor = assembly.loaded.executor
        size, limits = assembly.summary.block_size, assembly.loaded.limits
        self.capacity = min(assembly.loaded.num_blocks * size, limits.max_model_len)
        """The most tokens that it can hold."""
        # From the end, so that the order of blocks is not that of positions.
        self._blocks = range(assembly.loaded.num_blocks)[::-1][: -(-self.capacity // size)]
        self._steps, self._length = 0, 0

    def restart(self) -> None:
        """What comes next is another text."""
        self._length = 0

    def feed(self, tokens: Sequence[int], prompt: Sequence[int] = ()) -> Tensor:
        """Logits after each of the next tokens, `[T, V]`.

        prompt: with the first piece, all tokens that count as the prompt.
        """
        assert self._length + len(tokens) <= self.capacity, "the sequence is longer than the pool"
        plan = StepPlan(self._steps)
        if self._length == 0:
            plan.joins.append(Join(0, 0, SamplingParams(), 0, prompt, (), frozenset(), ()))
            plan.blocks.append(BlockUpdate(0, 0, self._blocks))
        plan.slices.append(Slice(0, 0, self._length, len(tokens), tokens, 0, False))
        self._steps, self._length = self._steps + 1, self._length + len(tokens)
        return self._executor.logits(plan)
