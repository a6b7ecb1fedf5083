"""How the first rank leaves the others, though whatever it asks to end may hang."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Protocol, TypeVar

log = logging.getLogger("jackfield.engine")
T = TypeVar("T")
LEAVE_SECONDS = 10.0
"""For an end that nothing stands in the way of."""
ABORT_SECONDS = 5.0
"""For the same when collectives have been given up."""


class Link(Protocol):
    """What connects this process to the other ranks. Any of these calls may hang, as long as a
    device does, or somebody holds what it waits for."""

    def abort(self) -> None:
        """Leave a collective that this process waits in. In any thread."""

    def leave(self) -> None:
        """Leave the group, in good order or after `abort`."""

    def close(self) -> None:
        """Let go of where the ranks found each other. The last call; does not hang."""


class Departure:
    """Each call returns in seconds. What has not ended by then is left to its thread."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._aborting: Future[None] | None = None

    def abort(self) -> None:
        """Begin to leave collectives, once, and do not wait: some libraries come back only when
        the graphs that hold collectives are gone, and who drops them must not be in their way."""
        if self._aborting is None:
            # Known before it begins, since whoever it lets go on waits for it before they leave.
            self._aborting = Future()
            _begin("jackfield-abort", self._link.abort, self._aborting)

    def go(self, drop: Callable[[], None], give_up: Callable[[], None]) -> None:
        """Drop what holds collectives, then leave the group. give_up: called when that takes too
        long; it ends the others, and calls `abort`. Raises what `drop` does."""
        gone = in_thread("jackfield-leave", lambda: self._go(drop))
        if self._aborting is None and not _ends(gone, LEAVE_SECONDS):
            give_up()
        if _ends(gone, ABORT_SECONDS):
            gone.result()
        else:
            log.error("what this process shared with other ranks cannot be given back: it hangs")

    def _go(self, drop: Callable[[], None]) -> None:
        try:
            drop()
        finally:
            if self._aborting is not None:
                wait([self._aborting])
            self._link.leave()

    def close(self) -> None:
        """The others have ended, too."""
        self._link.close()


def in_thread(name: str, work: Callable[[], T]) -> "Future[T]":
    """Begin it in a thread that keeps nobody from ending the process."""
    found: Future[T] = Future()
    _begin(name, work, found)
    return found


def _begin(name: str, work: Callable[[], T], found: "Future[T]") -> None:
    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()


def _ends(found: "Future[None]", seconds: float) -> bool:
    return not wait([found], seconds).not_done
