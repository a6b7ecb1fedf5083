"""What the engine counted during one repetition."""

from collections import Counter
from collections.abc import Sequence
from math import ceil, log2
from typing import Any, NamedTuple

from jackfield.core.engine.metrics import Metrics

PER_DOUBLING = 2


class StepFigures(NamedTuple):
    """Planning times in microseconds, step times in milliseconds.

    A step's time begins when it is submitted and ends when its tokens are there, so it holds what
    is left of the step before if the two overlap. step_ms_histogram: (time, how many steps took at
    most that and more than the entry before), two entries per doubling, without empty ones.
    """

    steps: int
    preemptions: int
    cached_prompt_tokens: int
    planning_us_p50: float
    planning_us_p99: float
    step_ms_p50: float
    step_ms_p99: float
    step_ms_histogram: list[tuple[float, int]]


class StepCounter:
    """Counts from when it is made. Forgets the times of earlier steps."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before = _counts(metrics)
        metrics.planning.clear()
        metrics.step_times.clear()

    def figures(self) -> StepFigures:
        """What was counted until now."""
        metrics = self._metrics
        names, now = _counts(metrics), metrics.step_times
        counted: dict[str, Any] = {name: names[name] - self._before[name] for name in names}
        return StepFigures(
            **counted,
            planning_us_p50=round(metrics.planning.quantile(0.5) * 1e6, 1),
            planning_us_p99=round(metrics.planning.quantile(0.99) * 1e6, 1),
            step_ms_p50=round(now.quantile(0.5) * 1e3, 3),
            step_ms_p99=round(now.quantile(0.99) * 1e3, 3),
            step_ms_histogram=histogram([1e3 * one for one in now.recent(counted["steps"])]),
        )


def _counts(metrics: Metrics) -> dict[str, int]:
    names = ("steps", "preemptions", "cached_prompt_tokens")
    return {name: getattr(metrics, name) for name in names}


def histogram(values: Sequence[float]) -> list[tuple[float, int]]:
    """(upper bound, how many values up to it), rising; positive values, no empty entries."""
    places = Counter(ceil(PER_DOUBLING * log2(max(value, 1e-6))) for value in values)
    return [(round(2 ** (place / PER_DOUBLING), 3), places[place]) for place in sorted(places)]


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies. values: at least one."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
