"""Transfers that are ordered, under way, or late."""

from typing import NamedTuple

from jackfield.core.kv.entry import Entry
from jackfield.core.kv.load import Load
from jackfield.core.kv.tier import Tier
from jackfield.core.kv.transfers import Transfer, TransferKind


class Pending(NamedTuple):
    """A transfer under way. load: on whose behalf, if it is a LOAD."""

    order: Transfer
    entry: Entry
    started: float
    load: Load | None


class OrderBook:
    """Numbers transfers. Each is told to the executor once, and ends once."""

    def __init__(self) -> None:
        self.pending: dict[int, Pending] = {}
        self._new: list[Transfer] = []
        self._number = 0

    def add(
        self,
        kind: TransferKind,
        tier: Tier,
        slot: int,
        entry: Entry,
        now: float,
        *,
        block: int,
        above: str = "",
        load: Load | None = None,
    ) -> int:
        """A transfer that the next `take` tells of; its number."""
        self._number += 1
        order = Transfer(self._number, kind, tier.name, slot, block, above, tier.spec.checked)
        self._new.append(order)
        self.pending[self._number] = Pending(order, entry, now, load)
        return self._number

    def take(self, now: float) -> list[Transfer]:
        """Orders since the last call; they begin now, however long planning and the step took."""
        orders, self._new = self._new, []
        for order in orders:
            self.pending[order.number] = self.pending[order.number]._replace(started=now)
        return orders

    def under_way(self, tier: str) -> int:
        """Transfers of a tier that have not ended."""
        return sum(one.order.tier == tier for one in self.pending.values())

    def started_by(self, time: float) -> list[int]:
        """Numbers of those that were ordered by then."""
        return [number for number, one in self.pending.items() if one.started <= time]

    def first_start(self) -> float | None:
        """When the oldest was ordered; None if nothing is under way."""
        return min((one.started for one in self.pending.values()), default=None)
