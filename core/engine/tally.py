"""How many requests of each tenant are in the engine without a seat."""

from collections.abc import Mapping
from types import MappingProxyType


class Tally:
    """Counts by tenant. `counts` shows them, for reading, and holds nobody who has none."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.counts: Mapping[str, int] = MappingProxyType(self._counts)

    def add(self, tenant: str) -> None:
        """One more."""
        self._counts[tenant] = self._counts.get(tenant, 0) + 1

    def drop(self, tenant: str) -> None:
        """One less; it was added before."""
        left = self._counts[tenant] - 1
        if left:
            self._counts[tenant] = left
        else:
            del self._counts[tenant]
