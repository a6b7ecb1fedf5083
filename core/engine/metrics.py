"""What the engine counts."""

from array import array
from collections import Counter
from dataclasses import dataclass, field

from jackfield.core.engine.distributions import Distributions

SAMPLES = 65_536


class Reservoir:
    """The last measurements of one kind, for quantiles."""

    def __init__(self, capacity: int = SAMPLES) -> None:
        self._values = array("d")
        self._capacity = capacity
        self._next = 0

    def add(self, value: float) -> None:
        """Keep the value; the oldest goes when full."""
        if len(self._values) < self._capacity:
            self._values.append(value)
        else:
            self._values[self._next] = value
            self._next = (self._next + 1) % self._capacity

    def quantile(self, share: float) -> float:
        """The value below which that share lies; 0 when nothing was measured."""
        if not self._values:
            return 0.0
        ordered = sorted(self._values)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def recent(self, count: int) -> list[float]:
        """The last `count` values, or as many as there are, in no order."""
        count = min(count, len(self._values))
        end = self._next or len(self._values)
        wrapped = max(count - end, 0) if len(self._values) == self._capacity else 0
        older = self._values[len(self._values) - wrapped :] if wrapped else ()
        return [*self._values[max(end - count, 0) : end], *older]

    def clear(self) -> None:
        """Forget all."""
        self._values = array("d")
        self._next = 0


@dataclass(slots=True)
class Metrics:
    """Counters since the start, and times of recent steps in seconds.

    prompt_tokens: known positions that steps computed, those of tokens that a preemption lost
    included. computed_prompt_tokens, cached_prompt_tokens: where the prompts of answers
    came from that have a first token; together their length. shared_tokens:
    positions that were there, at every admission. out_of_memory_steps: of those that failed.
    rejections: plugin -> requests that it refused.
    displacements: plugin -> seats that it took for a waiting request; preemptions hold them too.
    """

    distributions: Distributions
    steps: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    recomputed_tokens: int = 0
    shared_tokens: int = 0
    computed_prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    admissions: int = 0
    valve_admissions: int = 0
    preemptions: int = 0
    displacements: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    failed_steps: int = 0
    out_of_memory_steps: int = 0
    policy_stalls: Counter[str] = field(default_factory=Counter)
    planning: Reservoir = field(default_factory=Reservoir)
    step_times: Reservoir = field(default_factory=Reservoir)
