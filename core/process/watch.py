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
        threading.Thread(target=self._run, name="jackfield-watch", daemon=True).start()

    def attach(self, engine: Engine, limit: float) -> None:
        """The engine runs from now on. limit: seconds that a step may take."""
        self._limit = limit
        self._arm()
        self._engine = engine

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
            self._give_up()
        self._channel.send(encode(Heartbeat(busy, take_snapshot(engine))))

    def _give_up(self) -> None:
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        reason = (
            f"a step has not returned within engine.watchdog = {self._limit:g} seconds; where it "
            f"hangs is in the log"
        )
        self._channel.send(encode(Died(reason)))
        self._channel.close(FAREWELL)
        os._exit(EngineStoppedError.exit_code)
