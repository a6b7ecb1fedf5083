"""Faults of the plugins that say who a caller is, for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from jackfield.server.http.identity import Identity


class IdentityNumbers(Collector):
    """Plugins of the engine's process are counted there, under another name."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "jackfield_identify_faults", "Callers that a plugin failed to judge.", labels=["plugin"]
        )
        for plugin, count in self._identity.faults.items():
            family.add_metric([plugin], count)
        yield family
