"""Tells somebody as soon as transfers of this rank end."""

from collections.abc import Callable, Sequence
from threading import Thread

from jackfield.core.executors.single import SingleDevice
from jackfield.core.kv.transfers import TransferEnd

PERIOD = 0.5


class ToldTransfers:
    """A thread that waits for ends. It takes them; nobody else may.

    tell: called in that thread, with what has ended.
    """

    def __init__(
        self, executor: SingleDevice, tell: Callable[[Sequence[TransferEnd]], None]
    ) -> None:
        self._executor = executor
        self._tell = tell
        self._is_over = False
        self._thread = Thread(target=self._run, name="jackfield-rank-transfers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell no more. Does not wait for the thread, which ends soon."""
        self._is_over = True

    def _run(self) -> None:
        while not self._is_over:
            self._executor.await_transfer(PERIOD)
            ends = self._executor.transferred()
            if ends and not self._is_over:
                self._tell(ends)
