"""Requests of clients, counted by route."""

from collections import Counter

from jackfield.core.histogram import Histogram, HistogramCounts

SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30,
    60,
)  # fmt: skip
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")
OTHER = "other"


class Traffic:
    """requests: (path, method, class of the status) -> how many. All labels take few values."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, ...]] = Counter()
        self.in_flight = 0
        self._seconds: dict[tuple[str, ...], Histogram] = {}

    def count(self, path: str, method: str, status: int, seconds: float) -> None:
        """One request has ended. path: a route of the server, or `OTHER`; status 0: client left."""
        known = method if method in METHODS else OTHER
        self.requests[(path, known, f"{status // 100}xx" if status else "left")] += 1
        key = (path, known)
        if key not in self._seconds:
            self._seconds[key] = Histogram(SECONDS)
        self._seconds[key].add(seconds)

    def seconds(self) -> dict[tuple[str, ...], HistogramCounts]:
        """(path, method) -> how long they took."""
        return {key: histogram.counts() for key, histogram in self._seconds.items()}
