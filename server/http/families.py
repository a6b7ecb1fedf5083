"""Families of metrics, from plain numbers to what the client library writes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from jackfield.core.histogram import HistogramCounts

Values = Mapping[tuple[str, ...], float]
"""Values of labels -> number."""


class Families:
    """Makes families whose names begin alike, all with the same labels beside their own."""

    def __init__(self, prefix: str, labels: Mapping[str, str]) -> None:
        self._prefix = prefix
        self._names = tuple(labels)
        self._shared = tuple(labels.values())

    def gauge(self, name: str, meaning: str, value: float) -> Metric:
        """One number that rises and falls."""
        return self.gauges(name, meaning, (), {(): value})

    def gauges(self, name: str, meaning: str, labels: Sequence[str], values: Values) -> Metric:
        """As many as there are values of the labels."""
        family = GaugeMetricFamily(self._prefix + name, meaning, labels=(*labels, *self._names))
        for own, value in values.items():
            family.add_metric((*own, *self._shared), float(value))
        return family

    def counter(self, name: str, meaning: str, value: float) -> Metric:
        """One number that only rises. Its name gets the ending `_total`."""
        return self.counters(name, meaning, (), {(): value})

    def counters(self, name: str, meaning: str, labels: Sequence[str], values: Values) -> Metric:
        """As many as there are values of the labels."""
        family = CounterMetricFamily(self._prefix + name, meaning, labels=(*labels, *self._names))
        for own, value in values.items():
            family.add_metric((*own, *self._shared), float(value))
        return family

    def histogram(self, name: str, meaning: str, counts: "HistogramCounts") -> Metric:
        """One distribution."""
        return self.histograms(name, meaning, (), {(): counts})

    def histograms(
        self,
        name: str,
        meaning: str,
        labels: Sequence[str],
        values: "Mapping[tuple[str, ...], HistogramCounts]",
    ) -> Metric:
        """As many as there are values of the labels."""
        names = (*labels, *self._names)
        family = HistogramMetricFamily(self._prefix + name, meaning, labels=names)
        for own, counts in values.items():
            family.add_metric((*own, *self._shared), list(_buckets(counts)), counts.total)
        return family


def _buckets(counts: "HistogramCounts") -> Iterator[tuple[str, float]]:
    bounds = [*map(floatToGoString, counts.bounds), "+Inf"]
    yield from zip(bounds, map(float, accumulate(counts.counts)), strict=True)


def by(values: Mapping[str, float], *known: str) -> Values:
    """For one label. known: values of it that are always there, at 0 if need be."""
    return {(value,): number for value, number in {**dict.fromkeys(known, 0.0), **values}.items()}
