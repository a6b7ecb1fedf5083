"""Transfers of blocks of which every rank holds a part: each has ended when it has on all."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from jackfield.core.executors.ended_transfers import EndedTransfers
from jackfield.core.kv.transfers import TransferEnd

GIVEN_UP = "it was given up"


@dataclass(slots=True)
class _Open:
    """missing: ranks on which it has not ended."""

    missing: set[int]
    error: str | None = None
    seconds: float = 0.0


class JointTransfers(EndedTransfers):
    """What the ranks tell comes in from any thread; the engine's thread takes what has ended."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._ranks = range(size)
        self._open: dict[int, _Open] = {}

    def open(self, numbers: Iterable[int]) -> None:
        """These are about to be ordered of all ranks."""
        with self._changed:
            for number in numbers:
                self._open[number] = _Open(set(self._ranks))

    def ended(self, rank: int, ends: Iterable[TransferEnd]) -> None:
        """On one rank. A failure there is a failure of the transfer."""
        with self._changed:
            for number, error, seconds in ends:
                self._end(rank, number, error, seconds)

    def _end(self, rank: int, number: int, error: str | None, seconds: float = 0.0) -> None:
        found = self._open[number]
        found.missing.remove(rank)
        found.seconds = max(found.seconds, seconds)
        if error is not None and found.error is None:
            found.error = error if rank == 0 else f"rank {rank}: {error}"
        if not found.missing:
            del self._open[number]
            self._add(TransferEnd(number, found.error, found.seconds))

    def given_up(self, numbers: Iterable[int], by_rank: Sequence[Collection[int]]) -> list[int]:
        """Those of the numbers that every rank gave up; nothing more is told of them. On those that
        only some gave up the others will end, as failures."""
        found = []
        with self._changed:
            for number in numbers:
                ranks = [rank for rank in self._ranks if number in by_rank[rank]]
                if len(ranks) == len(self._ranks):
                    del self._open[number]
                    found.append(number)
                    continue
                for rank in ranks:
                    self._end(rank, number, GIVEN_UP)
        return found
