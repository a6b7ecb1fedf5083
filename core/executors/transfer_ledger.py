"""Which transfers are under way, which have ended, and which were given up."""

from collections.abc import Iterable
from time import perf_counter

from jackfield.core.executors.ended_transfers import EndedTransfers
from jackfield.core.kv.transfers import TransferEnd


class Ledger(EndedTransfers):
    """The one thing that the engine's thread and those of the tiers share.

    A transfer is open until it ends or is given up. While it touches the device it cannot be given
    up; whoever works on it asks again before each further act.
    """

    def __init__(self) -> None:
        super().__init__()
        self._touching: dict[int, bool] = {}
        self._opened: dict[int, float] = {}

    def open(self, numbers: Iterable[int]) -> None:
        """These begin."""
        with self._changed:
            now = perf_counter()
            for number in numbers:
                assert number not in self._touching, f"transfer {number} is under way already"
                self._touching[number] = False
                self._opened[number] = now

    def is_open(self, number: int) -> bool:
        """Whether it has neither ended nor been given up."""
        with self._changed:
            return number in self._touching

    def touch(self, numbers: Iterable[int]) -> set[int]:
        """Those of them that are open; from now on they touch the device."""
        with self._changed:
            found = {number for number in numbers if number in self._touching}
            self._touching.update(dict.fromkeys(found, True))
            return found

    def leave(self, numbers: Iterable[int]) -> None:
        """They do not touch the device any more, and are open still."""
        with self._changed:
            self._touching.update(dict.fromkeys(numbers, False))

    def end(self, number: int, error: str | None = None) -> None:
        """It is over. Says nothing of one that was given up."""
        with self._changed:
            if self._touching.pop(number, None) is not None:
                seconds = perf_counter() - self._opened.pop(number)
                self._add(TransferEnd(number, error, seconds))

    def cancel(self, numbers: Iterable[int]) -> list[int]:
        """Give up those that are open and do not touch the device; these are returned."""
        with self._changed:
            given_up = [number for number in numbers if self._touching.get(number) is False]
            for number in given_up:
                del self._touching[number], self._opened[number]
            return given_up
