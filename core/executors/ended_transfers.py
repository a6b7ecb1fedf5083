"""Transfers that have ended, until the engine's thread takes them."""

from collections.abc import Sequence
from threading import Condition

from jackfield.core.kv.transfers import TransferEnd


class EndedTransfers:
    """Others end them, in any thread, and tell through `_changed`."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._ended: list[TransferEnd] = []

    def take(self) -> Sequence[TransferEnd]:
        """Those that ended since the last call."""
        if not self._ended:  # asked every step: no lock for nothing
            return ()
        with self._changed:
            taken, self._ended = self._ended, []
            return taken

    def wait(self, seconds: float) -> None:
        """Until something has ended that was not taken, or so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended, seconds)

    def _add(self, end: TransferEnd) -> None:
        """One more. Holds the lock."""
        self._ended.append(end)
        self._changed.notify_all()
