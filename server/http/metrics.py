"""What Prometheus may scrape: requests as clients see them, and the engine's own numbers."""

from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jackfield.server.http.backend import Backend, trouble

if TYPE_CHECKING:
    from jackfield.core.front.outputs import RequestOutput

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
TOTALS = (
    "steps", "failed_steps", "prompt_tokens", "output_tokens", "recomputed_tokens",
    "shared_tokens", "admissions", "preemptions", "rejections",
)  # fmt: skip
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")
OTHER = "other"


class Metrics:
    """A registry of its own. Labels take few values: known paths, methods and status classes."""

    def __init__(self, backend: Backend) -> None:
        self._registry = registry = CollectorRegistry(auto_describe=False)
        registry.register(EngineNumbers(backend))
        self._requests = Counter(
            "jackfield_http_requests", "Requests that were answered, or left by their client.",
            ["path", "method", "status"], registry=registry,
        )  # fmt: skip
        self.in_flight = Gauge(
            "jackfield_http_requests_in_flight", "Requests under way.", registry=registry
        )
        self._first = Histogram(
            "jackfield_time_to_first_token_seconds", "From the request to its first token.",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._whole = Histogram(
            "jackfield_request_seconds", "From the request to the end of its answers.",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._each = Histogram(
            "jackfield_time_per_output_token_seconds", "After the first token, the mean.",
            buckets=TOKEN_SECONDS, registry=registry,
        )  # fmt: skip

    def count(self, path: str, method: str, status: int) -> None:
        """One more request. path: one of the server's own, or `OTHER`; status 0: client left."""
        known = method if method in METHODS else OTHER
        shown = f"{status // 100}xx" if status else "left"
        self._requests.labels(path, known, shown).inc()

    def timing(self) -> "Timing":
        """For one request, from now on."""
        return Timing(self._first, self._whole, self._each)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)


class Timing:
    """The times of one request to the engine."""

    def __init__(self, first: Histogram, whole: Histogram, each: Histogram) -> None:
        self._first = first
        self._whole = whole
        self._each = each
        self._start = perf_counter()
        self._first_at: float | None = None

    def news(self) -> None:
        """Something of an answer has come."""
        if self._first_at is None:
            self._first_at = perf_counter()
            self._first.observe(self._first_at - self._start)

    def end(self, outputs: "list[RequestOutput]") -> None:
        """All answers are whole."""
        now = perf_counter()
        self._whole.observe(now - self._start)
        longest = max(len(answer.token_ids) for output in outputs for answer in output.outputs)
        if longest > 1 and self._first_at is not None:
            self._each.observe((now - self._first_at) / (longest - 1))


class EngineNumbers(Collector):
    """Reads the engine's statistics when somebody scrapes, so no number outlives its cause."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        now = self._backend.metrics()
        used = now.total_blocks - now.free_blocks
        share = used / now.total_blocks if now.total_blocks else 0.0
        yield _gauge("requests_running", "Answers that hold a seat.", now.running)
        yield _gauge("requests_waiting", "Answers in the queue.", now.waiting)
        yield _gauge("requests_parked", "Answers that wait behind a gate.", now.parked)
        yield _gauge("kv_usage", "Share of the KV blocks that are in use.", share)
        yield _gauge("kv_blocks", "KV blocks of the pool.", now.total_blocks)
        yield _gauge("engine_up", "1 while the engine works.", trouble(self._backend) is None)
        for name in TOTALS:
            meaning = f"The engine's count of {name.replace('_', ' ')}."
            yield CounterMetricFamily(f"jackfield_{name}", meaning, value=getattr(now, name))
        yield _counts("answers", "Answers that ended.", "reason", now.finished)
        yield _counts("policy_stalls", "Plans left empty.", "plugin", now.policy_stalls)
        yield _counts("plugin_faults", "Faults of plugins.", "plugin", now.faults)


def _counts(
    name: str, meaning: str, label: str, counts: Mapping[str, int]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"jackfield_{name}", meaning, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"jackfield_{name}", meaning, value=float(value))
