"""A device that runs out of memory gets smaller steps."""

import logging
from contextlib import suppress
from traceback import clear_frames
from typing import Any

from jackfield.core.engine.decisions import CORE, Action, Decision, DecisionLog
from jackfield.core.engine.lifecycle import Lifecycle
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.steps import StepPlan

log = logging.getLogger("jackfield.engine")
PHRASES = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "alloc_failed",
)
"""What runtime errors of devices and allocators say, in lower case."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a step failed for want of memory; told by its text where its type says nothing."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(phrase in text for phrase in PHRASES)


class Shrinking:
    """Halves the largest step each time that a step of the size planned now needs too much.

    Steps that were planned before the last halving do not count again. It never grows back: what
    was too much once would be too much again, and cost others their answers.
    """

    def __init__(
        self,
        planner: Planner,
        lifecycle: Lifecycle,
        decisions: DecisionLog,
        executor: Any,
    ) -> None:
        self._decisions = decisions
        self._planner = planner
        self._lifecycle = lifecycle
        self._executor = executor
        self._since = 0
        self._last = ""

    def report(self) -> dict[str, str]:
        """What an operator should know; empty while there was enough."""
        return {CORE: self._last} if self._last else {}

    def failed(self, plan: StepPlan, error: BaseException) -> None:
        """A step failed. Nothing is granted for the next one yet."""
        if not is_out_of_memory(error):
            return
        self._lifecycle.metrics.out_of_memory_steps += 1
        self._release(error)
        if plan.number < self._since:
            return
        before = self._planner.limits.max_tokens
        tokens = self._planner.shrink()
        self._since = self._planner.number
        size = f"the largest step is now {tokens} tokens"
        if tokens == before:
            size = f"the largest step stays {tokens} tokens, one for each sequence"
        self._tell(f"{size}: step {plan.number} ran out of memory (it had {plan.num_tokens})")

    def _release(self, error: BaseException) -> None:
        """What the step held hangs on its frames, and then on the allocator's cache."""
        clear_frames(error.__traceback__)
        release = getattr(self._executor, "release_cached", None)
        if release is not None:
            with suppress(Exception):  # a device that is broken shows that at its next step
                release()

    def _tell(self, reason: str) -> None:
        self._last = reason
        log.warning("%s", reason)
        now, number = self._lifecycle.now(), self._planner.number
        code = Code.OUT_OF_MEMORY
        self._decisions.add(Decision(now, number, "", Action.FAULT, reason, CORE, code))
