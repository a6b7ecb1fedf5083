"""What Prometheus may scrape: requests as clients see them, and the engine's own numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

from jackfield.server.http.backend import PATIENCE, Backend, Patience
from jackfield.server.http.engine_numbers import EngineNumbers
from jackfield.server.http.front_numbers import FrontNumbers
from jackfield.server.http.stopwatch import Stopwatch, Waits
from jackfield.server.http.traffic import OTHER, Traffic
from jackfield.server.http.vllm_numbers import VllmNumbers
from jackfield.server.http.vllm_traffic import VllmTraffic

__all__ = ["OTHER", "Compat", "Metrics"]

Compat = Literal["none", "vllm"]


class Metrics:
    """One registry of its own, in the one process that answers clients.

    compat: whose names are there beside Jackfield's.
    """

    def __init__(
        self,
        backend: Backend,
        model_name: str,
        compat: Compat = "none",
        patience: Patience = PATIENCE,
    ) -> None:
        self._registry = registry = CollectorRegistry(auto_describe=False)
        self._waits = waits = Waits()
        self._traffic = traffic = Traffic()
        registry.register(EngineNumbers(backend, patience))
        registry.register(FrontNumbers(waits, traffic))
        if compat == "vllm":
            registry.register(VllmNumbers(backend, waits, model_name))
            registry.register(VllmTraffic(traffic))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """While a request is answered."""
        self._traffic.in_flight += 1
        try:
            yield
        finally:
            self._traffic.in_flight -= 1

    def count(self, path: str, method: str, status: int, seconds: float) -> None:
        """One request has ended. path: a route of the server, or `OTHER`; status 0: client left."""
        self._traffic.count(path, method, status, seconds)

    def stopwatch(self, prompts: int) -> Stopwatch:
        """For one request, from now on."""
        return Stopwatch(self._waits, prompts)

    def add(self, numbers: Collector) -> None:
        """Numbers of another part of this process."""
        self._registry.register(numbers)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)
