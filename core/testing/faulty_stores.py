"""Stores that are slow, that raise, that never return, and that give back other bytes."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from threading import Event, get_ident

from torch import Tensor

from jackfield.core.api import TierStore

FOR_EVER = 3600.0


class MemoryStore:
    """A store as simple as can be. Notes who calls it, and what was called."""

    def __init__(self) -> None:
        self.slots: dict[int, Tensor] = {}
        self.calls: list[tuple[str, int]] = []
        self.threads: set[int] = set()
        self.closed = False

    def put(self, slot: int, data_B: Tensor) -> None:
        """A copy of the bytes."""
        self._note("put", slot)
        self.slots[slot] = data_B.clone()

    def get(self, slot: int, into_B: Tensor) -> None:
        """Raises `KeyError` for an empty slot."""
        self._note("get", slot)
        into_B.copy_(self.slots[slot])

    def drop(self, slot: int) -> None:
        """An empty slot may be dropped too."""
        self._note("drop", slot)
        self.slots.pop(slot, None)

    def close(self) -> None:
        """Once."""
        self._note("close", -1)
        assert not self.closed, "a store is closed twice"
        self.closed = True
        self.slots.clear()

    def _note(self, name: str, slot: int) -> None:
        assert not self.closed, f"{name} of a closed store"
        self.calls.append((name, slot))
        self.threads.add(get_ident())


class StoreError(OSError):
    """What a faulty store raises."""


@dataclass
class Faults:
    """Which calls go wrong, and how. Calls of one kind are counted from 0.

    puts, gets: raise. hanging_puts, hanging_gets: wait until `released`; `reached` is set then.
    corrupted: gets that give one byte wrong. cut: gets that fill the first half only. delay:
    seconds that each call takes.
    """

    puts: Collection[int] = ()
    gets: Collection[int] = ()
    hanging_puts: Collection[int] = ()
    hanging_gets: Collection[int] = ()
    corrupted: Collection[int] = ()
    cut: Collection[int] = ()
    delay: float = 0.0
    error: BaseException = field(default_factory=lambda: StoreError("the store is broken"))
    reached: Event = field(default_factory=Event)
    released: Event = field(default_factory=Event)


class FaultyStore:
    """Another store, with faults."""

    def __init__(self, inner: TierStore, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self._num_puts = 0
        self._num_gets = 0

    def put(self, slot: int, data_B: Tensor) -> None:
        """Waits, raises, or stores."""
        number, self._num_puts = self._num_puts, self._num_puts + 1
        self._before(number in self._faults.hanging_puts, number in self._faults.puts)
        self._inner.put(slot, data_B)

    def get(self, slot: int, into_B: Tensor) -> None:
        """Waits, raises, or gives more or less what was stored."""
        number, self._num_gets = self._num_gets, self._num_gets + 1
        self._before(number in self._faults.hanging_gets, number in self._faults.gets)
        before_B = into_B.clone()
        self._inner.get(slot, into_B)
        if number in self._faults.cut:
            half = len(into_B) // 2
            into_B[half:] = before_B[half:]
        if number in self._faults.corrupted:
            into_B[len(into_B) // 2] ^= 1

    def drop(self, slot: int) -> None:
        """Passed on."""
        self._inner.drop(slot)

    def close(self) -> None:
        """Passed on."""
        self._inner.close()

    def _before(self, hangs: bool, raises: bool) -> None:
        time.sleep(self._faults.delay)
        if hangs:
            self._faults.reached.set()
            self._faults.released.wait(FOR_EVER)
        if raises:
            raise self._faults.error
