"""How long work (a download, a conversion) says how far it is."""

import sys
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichBar


class Progress(Protocol):
    """Told by one thread: `start`, any number of `advance`, `finish`; then perhaps all again."""

    def start(self, label: str, total: int | None) -> None:
        """A piece of work begins; `total` in units of `advance`, None when it is not known."""

    def advance(self, n: int) -> None:
        """`n` more units are done."""

    def finish(self) -> None:
        """The piece of work that was started has ended, well or not."""


class SilentProgress:
    """Says nothing."""

    def start(self, label: str, total: int | None) -> None:
        pass

    def advance(self, n: int) -> None:
        pass

    def finish(self) -> None:
        pass


class RichProgress:
    """A bar on a terminal; one plain line per piece of work elsewhere. Writes to stderr."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream or sys.stderr)
        self._bar: RichBar | None = None
        self._task = TaskID(0)

    def start(self, label: str, total: int | None) -> None:
        if not self._console.is_terminal:
            print(label, file=self._console.file, flush=True)
            return
        self._bar = RichBar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task(label, total=total)
        self._bar.start()

    def advance(self, n: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, n)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
