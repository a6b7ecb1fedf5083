"""Values counted by their size."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple


class HistogramCounts(NamedTuple):
    """A histogram at one moment.

    counts[i]: values above bounds[i - 1] and at most bounds[i]; the last one: above all bounds.
    """

    bounds: Sequence[float]
    counts: list[int]
    total: float


class Histogram:
    """Adding costs a fraction of a microsecond and allocates nothing."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """bounds: rising."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def counts(self) -> HistogramCounts:
        """A copy that later values do not change."""
        return HistogramCounts(self._bounds, list(self._counts), self._total)
