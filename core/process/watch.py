"""Watches the engine's loop and the process that started it, from a thread beside the loop."""

import faulthandler
import os
import sys
import threading
import time

from jackfield.core.api import EngineStoppedError
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.snapshot import take_snapshot
from jackfield.core.process.channel import Channel
from jackfield.core.wire.codec import encode
from jackfield.core.wire.messages import Died, Heartbeat

PERIOD = 0.25
GRACE = 2.0
"""Seconds for those who should have noticed."""
FAREWELL = 1.0


class Watch:
    """Ends this process when its parent is gone; from `attach` on also when a step hangs.

    The loop brackets its work with `begin` and `end`. A heartbeat is sent every `PERIOD` seconds.
    """

    def __init__(self, channel: Channel, parent: int) -> None:
        self._channel = channel
        self._parent = parent
        self._began: float | None = None
        self._engine: Engine | None = None
        self._limit = 0.0
        self._ended: float | None = None
        self._is_closing = False
        threading.Thread(target=self._run, name="jackfield-watch", daemon=True).start()

    def attach(self, engine: Engine, limit: float) -> None:
        """The engine runs from now on. limit: seconds that a step may take."""
        self._limit = limit
        self._arm()
        self._engine = engine

    def detach(self) -> None:
        """The engine is being closed."""
        self._is_closing = True

    def begin(self) -> None:
        """A step begins."""
        self._began = time.monotonic()

    def end(self) -> None:
        """The step has returned."""
        self._began = None

    def _run(self) -> None:
        while not self._channel.is_broken(PERIOD) and os.getppid() == self._parent:
            if self._engine is not None:
                self._look_after(self._engine)
        os._exit(EngineStoppedError.exit_code)

    def _arm(self) -> None:
        # The last resort is a timer that needs no lock of the interpreter: a hook that never lets
        # this thread run is found by that one.
        faulthandler.dump_traceback_later(self._limit + GRACE, exit=True)

    def _look_after(self, engine: Engine) -> None:
        self._arm()
        began = self._began
        busy = 0.0 if began is None else time.monotonic() - began
        if busy > self._limit:
            self._give_up(engine)
        self._bury(engine)
        self._channel.send(encode(Heartbeat(busy, take_snapshot(engine))))

    def _bury(self, engine: Engine) -> None:
        """End with an engine that cannot go on. Its loop may do so first, or wait for ever."""
        if engine.end is None or self._is_closing:
            return
        now = time.monotonic()
        self._ended = self._ended or now
        if now - self._ended > GRACE:
            self._exit(engine.end)

    def _give_up(self, engine: Engine) -> None:
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        reason = (
            f"a step has not returned within engine.watchdog = {self._limit:g} seconds; where it "
            f"hangs is in the log"
        )
        self._exit(engine.diagnose(self._limit) or reason)

    def _exit(self, reason: str) -> None:
        self._channel.send(encode(Died(reason)))
        self._channel.close(FAREWELL)
        os._exit(EngineStoppedError.exit_code)
