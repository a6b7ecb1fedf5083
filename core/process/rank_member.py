"""One of the other ranks, as the first one knows it."""

import os
import time
from contextlib import suppress
from subprocess import Popen, TimeoutExpired
from tempfile import TemporaryFile
from typing import IO, Protocol

from jackfield.core.process.channel import Channel
from jackfield.core.process.rank_stack import ASK, main_stack, read_stacks
from jackfield.core.process.spawn import ending, spawn

MODULE = "jackfield.core.process.rank_process"
REAP_SECONDS = 5.0
STACK_SECONDS = 1.0
LOOK_SECONDS = 0.02


class Member(Protocol):
    """A rank that is reached over a channel. All calls but those of the channel come from one
    thread, or hold the group's lock."""

    rank: int
    channel: Channel
    heard: float
    step: int
    busy: float
    is_ready: bool

    def kill(self) -> None:
        """End it at once, whatever it does."""

    def ending(self) -> str:
        """How it has ended, once its channel is closed."""

    def close(self) -> None:
        """Called once it has ended."""

    def stack(self) -> str:
        """Where its main thread is; "" = it does not say."""

    def stacks(self) -> str:
        """What it has written of all its threads."""

    def __str__(self) -> str:
        """Its rank, and where it runs."""


class LocalMember:
    """A process of this host. It ends with the thread that makes it."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._file: IO[bytes] = TemporaryFile()  # noqa: SIM115 -- it lasts as long as the rank
        self._process: Popen[bytes]
        self._process, connection = spawn(MODULE, [self._file.fileno()])
        self.channel = Channel(connection)
        self.heard = time.monotonic()
        self.step = 0
        self.busy = 0.0
        self.is_ready = False

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self._process.pid})"

    def kill(self) -> None:
        self._process.kill()

    def ending(self) -> str:
        try:
            return ending(self._process.wait(REAP_SECONDS))
        except TimeoutExpired:
            self._process.kill()
            return ending(self._process.wait())

    def close(self) -> None:
        self.channel.close(0.0)
        self._file.close()

    def stacks(self) -> str:
        return read_stacks(self._file)

    def stack(self) -> str:
        before = len(self.stacks())
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, ASK)
        until = time.monotonic() + STACK_SECONDS
        while time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            found = main_stack(self.stacks()[before:])
            if found:
                return found
        return ""
