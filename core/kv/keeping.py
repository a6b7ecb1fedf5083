"""What is kept for longer than others, and for how long."""

from collections.abc import Sequence
from heapq import heappop, heappush

from jackfield.core.api import Keep
from jackfield.core.kv.entry import NO_BLOCK, Entry
from jackfield.core.kv.finder import Finder
from jackfield.core.kv.residency import Residency
from jackfield.core.kv.retention import NO_OPINION


class Keeping:
    """Pins, priorities and times of entries. most_pinned: entries that can be pinned at once."""

    def __init__(self, finder: Finder, residency: Residency, most_pinned: int) -> None:
        self._finder = finder
        self._residency = residency
        self._most_pinned = most_pinned
        self._expiries: list[tuple[float, int]] = []

    def mark(self, entries: Sequence[Entry], keep: Keep) -> None:
        """That is what is wished for them now, on top of what was before."""
        if keep == NO_OPINION:
            return
        changed = [entry for entry in entries if self._apply(entry, keep)]
        if changed:
            self._tell_changed(changed)

    @property
    def is_due(self) -> bool:
        """Whether the time of any entry may have come."""
        return bool(self._expiries) and self._expiries[0][0] <= self._residency.now

    def expire(self) -> None:
        """What has had its time goes, unless somebody needs it: that has none any more."""
        due: dict[int, Entry] = {}
        while self.is_due:
            expires, number = heappop(self._expiries)
            entry = self._finder.entries.get(number)
            if entry is not None and entry.expires == expires:
                due[number] = entry
        for entry in sorted(due.values(), key=lambda one: -one.depth):
            if entry.is_needed:
                entry.expires = None
                self._tell_changed((entry,))
            else:
                self._residency.kill(entry)

    def clear(self) -> None:
        """There are no entries any more."""
        self._expiries.clear()

    def _tell_changed(self, entries: Sequence[Entry]) -> None:
        """What is kept of these entries has changed, in every tier that holds them."""
        residency = self._residency
        residency.order.update([one for one in entries if one.block != NO_BLOCK], residency.now)
        for name, tier in residency.tiers.items():
            there = [entry for entry in entries if name in entry.slots]
            if there:
                tier.order.update(there, residency.now)

    def _apply(self, entry: Entry, keep: Keep) -> bool:
        before = (entry.pinned, entry.priority, entry.expires)
        entry.priority = max(entry.priority, keep.priority)
        if keep.pin and not entry.pinned:
            self._pin(entry)
        if keep.ttl is not None:
            expires = self._residency.now + keep.ttl
            if entry.expires is None or entry.expires < expires:
                entry.expires = expires
                heappush(self._expiries, (expires, entry.id))
        return before != (entry.pinned, entry.priority, entry.expires)

    def _pin(self, entry: Entry) -> None:
        residency = self._residency
        if residency.num_pinned < self._most_pinned:
            entry.pinned = True
            residency.num_pinned += 1
        else:
            residency.metrics.refused_pins += 1
