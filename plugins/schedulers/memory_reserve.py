"""Keeps blocks free for the answers that are running, as far as they are likely to grow."""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Sequence

from pydantic import Field

from jackfield.core.api import (
    Event,
    EventKind,
    PolicyConfig,
    PolicyContext,
    RequestView,
    Shape,
    StepView,
    hookimpl,
)

HISTORY = 1000


class MemoryReserveConfig(PolicyConfig):
    """quantile: of past lengths, that an answer is taken to reach. every: steps between looks at
    all running answers; in between, those that were admitted are added.
    """

    quantile: float = Field(0.5, ge=0, le=1)
    every: int = Field(8, ge=1)


class MemoryReserve:
    """Lets nobody in while the running answers' predicted peak would not fit.

    An answer is expected to become as long as the quantile of those of the last 1000 that were
    longer than it is now; if none was, twice as long as it is; never longer than its max_tokens.
    Answers end one after another and give their blocks back, so what counts is the highest sum of
    all that are still there.

    Guarantee: none but a better guess. Memory can still run out, and the core preempts then; a
    reserve larger than the pool stops nobody, since it does not count while nobody runs.

    Source: Gong et al., Past-Future Scheduler for LLM Serving under SLA Guarantees, ASPLOS 2025.
    """

    Config = MemoryReserveConfig

    def __init__(self, config: MemoryReserveConfig, context: PolicyContext) -> None:
        self._config = config
        self._block_size = context.block_size
        self._running: dict[int, RequestView] = {}
        self._lengths: deque[int] = deque()
        self._sorted: list[int] = []
        self._reserve = 0

    @hookimpl
    def observe(self, events: Sequence[Event]) -> None:
        for kind, request, _, num_tokens in events:
            if kind is EventKind.ADMITTED:
                self._running[request.handle] = request
                self._reserve += self._blocks(self._growth(request))
            elif kind is not EventKind.ARRIVED:
                self._running.pop(request.handle, None)
            if kind is EventKind.FINISHED:
                self._learn(num_tokens)

    def _learn(self, length: int) -> None:
        self._lengths.append(length)
        insort(self._sorted, length)
        if len(self._lengths) > HISTORY:
            del self._sorted[bisect_right(self._sorted, self._lengths.popleft()) - 1]

    @hookimpl
    def shape(self, step: StepView) -> Shape:
        if step.number % self._config.every == 0:
            self._reserve = self._blocks(self._peak())
        load = step.load
        one = self._blocks(self._expected(0))
        each = one + self._blocks(load.waiting_tokens // max(load.waiting, 1))
        new = (load.free_blocks - self._reserve) // max(each, 1)
        return Shape(new_seqs=max(new, 1), reserve_blocks=self._reserve + one)

    def _peak(self) -> int:
        """The most tokens beyond those of now that the running answers hold at any time."""
        every = [(self._growth(one), _held(one)) for one in self._running.values()]
        every.sort(reverse=True)
        now, peak, total = sum(held for _, held in every), 0, 0
        for place, (growth, held) in enumerate(every, start=1):
            total += held
            peak = max(peak, total + place * growth - now)
        return peak

    def _growth(self, request: RequestView) -> int:
        length = request.num_output_tokens
        return min(self._expected(length), request.max_tokens) - length

    def _expected(self, length: int) -> int:
        """Of an answer that has so many tokens now."""
        first, count = bisect_right(self._sorted, length), len(self._sorted)
        if first == count:
            return 2 * length
        return self._sorted[min(first + int(self._config.quantile * (count - first)), count - 1)]

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_size)


def _held(request: RequestView) -> int:
    return request.num_prompt_tokens + request.num_output_tokens
