"""Says that a rank lives, and ends it when the first rank has gone."""

import os
import threading
import time

from jackfield.core.api import EngineStoppedError
from jackfield.core.process.channel import Channel
from jackfield.core.wire.ranks import Alive, encode_rank

PERIOD = 0.25


class RankWatch:
    """A thread beside the one that runs the model, which may wait in a collective for ever."""

    def __init__(self, channel: Channel, parent: int) -> None:
        self._channel = channel
        self._parent = parent
        self._step = 0
        self._began: float | None = None
        threading.Thread(target=self._run, name="jackfield-rank-watch", daemon=True).start()

    def begin(self) -> None:
        """Something that was ordered begins."""
        self._began = time.monotonic()

    def step(self, number: int) -> None:
        """It is this step."""
        self._step = number

    def end(self) -> None:
        """It has been done."""
        self._began = None

    def _run(self) -> None:
        while not self._channel.is_broken(PERIOD) and os.getppid() == self._parent:
            began = self._began
            busy = 0.0 if began is None else time.monotonic() - began
            self._channel.send(encode_rank(Alive(self._step, busy)))
        os._exit(EngineStoppedError.exit_code)
