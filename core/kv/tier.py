"""One tier as the engine accounts for it: which slots are free, and who goes first."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from jackfield.core.api import BlockMeta, Evictor, TierSpec
from jackfield.core.kv.contained import Containment
from jackfield.core.kv.entry import Entry


class EvictionOrder:
    """An evictor behind its guard. What it answers is checked against the core's own record.

    An evictor that fails is helped out: blocks then go in the order in which they became
    evictable.
    """

    def __init__(self, evictor: Evictor, guard: Containment) -> None:
        self._evictor = evictor
        self._guard = guard
        self._evictable: dict[int, Entry] = {}
        self._removed: list[int] | None = None
        self._allowed: list[int] = []

    def __len__(self) -> int:
        return len(self._evictable)

    def insert(self, entries: Sequence[Entry], now: float) -> None:
        """These entries have a copy in the tier."""
        ids = [entry.id for entry in entries]
        self._tell(self._evictor.insert, ids, [meta_of(entry) for entry in entries], now)

    def update(self, entries: Sequence[Entry], now: float) -> None:
        """What is kept of these entries has changed."""
        ids = [entry.id for entry in entries]
        self._tell(self._evictor.update, ids, [meta_of(entry) for entry in entries], now)

    def touch(self, entries: Sequence[Entry], now: float) -> None:
        """These entries are used; the end of a sequence first."""
        self._tell(self._evictor.touch, [entry.id for entry in entries], now)

    def allow(self, entry: Entry) -> None:
        """The entry's copy may be given up."""
        self._evictable[entry.id] = entry
        if self._removed is not None:
            self._allowed.append(entry.id)
        else:
            self._tell(self._evictor.evictable, (entry.id,))

    def forbid(self, entry: Entry) -> None:
        """It may not any more."""
        assert self._removed is None, "it is about to be told of what has left"
        del self._evictable[entry.id]
        self._tell(self._evictor.busy, (entry.id,))

    def allows(self, entry: Entry) -> bool:
        """Whether the entry's copy may be given up."""
        return entry.id in self._evictable

    def remove(self, entry: Entry) -> None:
        """The copy has left the tier."""
        self._evictable.pop(entry.id, None)
        if self._removed is not None:
            self._removed.append(entry.id)
        else:
            self._tell(self._evictor.remove, (entry.id,))

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Many entries leave at once, and others become evictable by that: they are told of in
        one go. Nothing else happens meanwhile."""
        removed: list[int] = []
        self._removed = removed
        yield
        self._removed, allowed = None, self._allowed
        self._allowed = []
        self._tell(self._evictor.remove, removed)
        there = [number for number in allowed if number in self._evictable]
        if there:
            self._tell(self._evictor.evictable, there)

    def all(self) -> list[Entry]:
        """Everybody who may go, in no order."""
        return list(self._evictable.values())

    def victims(self, count: int, now: float) -> list[Entry]:
        """The next `count` to give up, or all."""
        count = min(count, len(self._evictable))
        if not count:
            return []
        found: list[Entry] = []
        if not self._guard.off:
            check = partial(self._checked, count)
            found = self._guard.ask(found, check, self._evictor.victims, count, now)
        if len(found) < count:
            seen = {entry.id for entry in found}
            rest = (entry for number, entry in self._evictable.items() if number not in seen)
            found += [entry for entry, _ in zip(rest, range(count - len(found)), strict=False)]
        return found

    def _checked(self, count: int, answer: Any) -> list[Entry]:
        found: dict[int, Entry] = {}
        for number in answer:
            entry = self._evictable.get(number) if type(number) is int else None
            if entry is None:
                raise ValueError(f"it names {number!r}, which is not evictable")
            if number in found:
                raise ValueError(f"it names block {number} twice")
            found[number] = entry
            if len(found) == count:
                break
        if len(found) < count:
            raise ValueError(f"it names {len(found)} blocks, {count} were asked for")
        return list(found.values())

    def _tell(self, hook: Any, *arguments: Any) -> None:
        if not self._guard.off:
            self._guard.call(None, hook, *arguments)

    def check(self, expected: set[int]) -> None:
        """Compare with what ought to be evictable. Raises `AssertionError`."""
        assert set(self._evictable) == expected, "the evictable blocks differ from the record"


def meta_of(entry: Entry) -> BlockMeta:
    """What an evictor is told of an entry."""
    return BlockMeta(entry.key, entry.depth, entry.priority, entry.pinned, entry.expires)


class Tier:
    """A tier below the device. A slot is free, or holds an entry, or is the target of a transfer.

    readers: slot -> transfers that read it. filling: slots that are being filled, or that are read
    although their entry has left. failures: in a row. off: why it is not used any more.
    """

    def __init__(self, spec: TierSpec, order: EvictionOrder) -> None:
        self.spec = spec
        self.order = order
        self.entries: dict[int, Entry] = {}
        self.readers: dict[int, int] = {}
        self.filling: set[int] = set()
        self.failures = 0
        self.off: str | None = None
        self._unused = iter(range(spec.num_slots))
        self._free: list[int] = []
        self._num_used = 0

    @property
    def name(self) -> str:
        """Of the specification."""
        return self.spec.name

    @property
    def num_free(self) -> int:
        """Slots without content."""
        return self.spec.num_slots - self._num_used

    def take_slot(self) -> int:
        """A free slot, now to be filled. The caller has checked `num_free`."""
        assert self.num_free > 0, f"no free slot in tier {self.name}"
        self._num_used += 1
        slot = self._free.pop() if self._free else next(self._unused)
        self.filling.add(slot)
        return slot

    def give_slot(self, slot: int) -> None:
        """The slot is free; nobody reads it."""
        assert slot not in self.readers, f"slot {slot} of tier {self.name} is being read"
        self.filling.discard(slot)
        self._num_used -= 1
        self._free.append(slot)

    def read(self, slot: int, change: int) -> None:
        """A transfer that reads the slot begins (1) or ends (-1)."""
        count = self.readers.get(slot, 0) + change
        if count:
            self.readers[slot] = count
        else:
            del self.readers[slot]

    def check(self) -> None:
        """Every slot is in one state. Raises `AssertionError`."""
        used = set(self.entries) | self.filling
        assert not set(self.entries) & self.filling, f"tier {self.name}: a full slot is filled"
        assert not set(self._free) & used, f"tier {self.name}: a free slot is used"
        assert len(used) <= self.spec.num_slots, f"tier {self.name} is over its capacity"
        for slot, entry in self.entries.items():
            assert entry.slots.get(self.name) == slot, f"tier {self.name}: slot {slot}"
