"""Requests of clients, under the names of the instrumentation that vLLM's server has."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from jackfield.core.histogram import HistogramCounts
from jackfield.server.http.families import Families
from jackfield.server.http.traffic import OTHER, SECONDS, Traffic

COARSE = (0.1, 0.5, 1)
"""Some of the bounds of the traffic's own histograms."""
NO_HANDLER = "none"


class VllmTraffic(Collector):
    """Without the sizes of requests and responses, which nobody counts here."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._families = Families("", {})

    def collect(self) -> Iterator[Metric]:
        make, seconds = self._families, self._traffic.seconds()
        yield make.counters(
            "http_requests", "Requests by method, status and handler.",
            ("handler", "method", "status"),
            {(_handler(key[0]), *key[1:]): n for key, n in self._traffic.requests.items()},
        )  # fmt: skip
        yield make.histogram(
            "http_request_duration_highr_seconds", "Latency of all requests.",
            _sum(seconds.values()),
        )  # fmt: skip
        yield make.histograms(
            "http_request_duration_seconds", "Latency by handler and method.",
            ("handler", "method"),
            {(_handler(path), method): _coarse(seconds[path, method]) for path, method in seconds},
        )  # fmt: skip


def _handler(path: str) -> str:
    return NO_HANDLER if path == OTHER else path


def _sum(parts: Iterable[HistogramCounts]) -> HistogramCounts:
    counts, total = [0] * (len(SECONDS) + 1), 0.0
    for part in parts:
        counts = [a + b for a, b in zip(counts, part.counts, strict=True)]
        total += part.total
    return HistogramCounts(SECONDS, counts, total)


def _coarse(fine: HistogramCounts) -> HistogramCounts:
    ends = [*(fine.bounds.index(bound) + 1 for bound in COARSE), len(fine.counts)]
    starts = [0, *ends[:-1]]
    counts = [sum(fine.counts[a:b]) for a, b in zip(starts, ends, strict=True)]
    return HistogramCounts(COARSE, counts, fine.total)
