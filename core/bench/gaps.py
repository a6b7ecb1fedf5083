"""How long a GPU stood still between two steps, told by events on its own timeline.

An event that is recorded early is reached when all that was queued before it is done. So the time
from the event at the end of a step to the one at the begin of the next is next to nothing if the
next step was submitted in time, and the time that the GPU waited for the host otherwise. What the
host does between the beginning of `forward` and its first launch comes after that event: it is
bounded by the time that `forward` took, and is nothing if all of the step was queued before the
one before it had ended, which is asked when `forward` returns.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import torch

from jackfield.core.bench.step_figures import quantile
from jackfield.core.bench.watching import Call, wrapped
from jackfield.core.engine.steps import Executor


class Mark(Protocol):
    """A place in the order of what a device does."""

    def query(self) -> bool:
        """Whether the device has come past it."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from here to there; both are past."""


class Gap(NamedTuple):
    """Seconds that the device stood still before a step, and the most that it can have been."""

    least: float
    most: float


class GapFigures(NamedTuple):
    """Microseconds. least: seen between the events. most: with the host's time until its first
    launch, as far as it can have mattered."""

    steps: int
    least_us_p50: float
    least_us_p99: float
    most_us_p50: float
    most_us_p99: float

    @classmethod
    def of(cls, gaps: Sequence[Gap]) -> "GapFigures":
        """gaps: at least one."""
        least, most = ([1e6 * gap[place] for gap in gaps] for place in range(2))
        quantiles = (quantile(times, share) for times in (least, most) for share in (0.5, 0.99))
        return cls(len(gaps), *(round(one, 1) for one in quantiles))


class Passage(NamedTuple):
    """One step: where it begins on the device, the seconds that `forward` took, whether the step
    before had ended when it returned."""

    begin: Mark
    forward: float
    late: bool


class GapRecorder:
    """Marks the begin and the end of each step that an executor runs."""

    def __init__(self, mark: Callable[[], Mark]) -> None:
        """mark: records one on the stream that the steps run on."""
        self._mark = mark
        self._passages: list[tuple[Mark, Passage]] = []
        self._end: Mark | None = None
        self._current: Passage | None = None

    @contextmanager
    def installed(self, executor: Executor) -> Iterator[None]:
        """Meanwhile, steps of the executor are recorded."""
        with ExitStack() as stack:
            stack.enter_context(wrapped(executor, "forward", self._forward))
            stack.enter_context(wrapped(executor, "sample", self._sample))
            yield

    def restart(self) -> None:
        """What comes next has no step before it: the engine had nothing to do."""
        self._end = None

    def gaps(self) -> list[Gap]:
        """One for each step that had one before it. All are done."""
        return [_gap(end, passage) for end, passage in self._passages]

    def _forward(self, call: Call) -> Call:
        def forward(plan: Any) -> Any:
            begin, started = self._mark(), perf_counter()
            ticket = call(plan)
            late = self._end is not None and self._end.query()
            self._current = Passage(begin, perf_counter() - started, late)
            return ticket

        return forward

    def _sample(self, call: Call) -> Call:
        def sample(ticket: Any, late: Any) -> None:
            call(ticket, late)
            if self._end is not None and self._current is not None:
                self._passages.append((self._end, self._current))
            self._end = self._mark()

        return sample


def _gap(end: Mark, passage: Passage) -> Gap:
    least = max(end.elapsed_time(passage.begin), 0.0) / 1e3
    return Gap(least, least + passage.forward if passage.late else least)


def cuda_mark() -> torch.cuda.Event:
    """An event that is recorded on the current stream."""
    event = timing_event()
    event.record()
    return event


def timing_event() -> torch.cuda.Event:
    """One that knows its time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
