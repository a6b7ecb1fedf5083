"""What this process counts, under Jackfield's names."""

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from jackfield.server.http.families import Families
from jackfield.server.http.stopwatch import Waits
from jackfield.server.http.traffic import Traffic


class FrontNumbers(Collector):
    """Requests of clients and how long they wait."""

    def __init__(self, waits: Waits, traffic: Traffic) -> None:
        self._waits = waits
        self._traffic = traffic
        self._families = Families("jackfield_", {})

    def collect(self) -> Iterator[Metric]:
        make, traffic = self._families, self._traffic
        yield make.counters(
            "http_requests", "Requests that were answered, or left by their client.",
            ("path", "method", "status"), traffic.requests,
        )  # fmt: skip
        yield make.histograms(
            "http_request_seconds", "From the head of a request to the end of its response.",
            ("path", "method"), traffic.seconds(),
        )  # fmt: skip
        yield make.gauge("http_requests_in_flight", "Requests under way.", traffic.in_flight)
        yield make.histogram(
            "time_to_first_token_seconds", "From a prompt that was read to its first token.",
            self._waits.first_token.counts(),
        )  # fmt: skip
        yield make.histogram(
            "inter_token_latency_seconds", "From one piece of an answer to the next.",
            self._waits.between.counts(),
        )  # fmt: skip
