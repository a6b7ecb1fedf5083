"""An engine in a thread of its own, for callers in another."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from jackfield.core.api import EngineStoppedError
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.messages import Delta, NewRequest

log = logging.getLogger("jackfield.engine")
Command = Callable[[Engine], None]
LONGEST_SLEEP = 1.0


class EngineThread:
    """Runs the engine's steps. Deltas are handed over in its thread, once per step.

    on_end is called in its thread when it stops: with None when it was closed, otherwise with
    what killed it.
    """

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], float],
        on_deltas: Callable[[Sequence[Delta]], None],
        on_end: Callable[[str | None], None],
    ) -> None:
        self._engine = engine
        self._now = now
        self._on_deltas = on_deltas
        self._on_end = on_end
        self._commands: deque[Command] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._death: str | None = None
        self._thread = threading.Thread(target=self._run, name="jackfield-engine", daemon=True)
        self._thread.start()

    def add(self, new: NewRequest, refused: Callable[[Exception], None]) -> None:
        """Hand a request over. `refused` is called in the engine's thread if it does not fit."""

        def command(engine: Engine) -> None:
            try:
                engine.add(new)
            except Exception as error:
                refused(error)

        self._send(command)

    def abort(self, request_id: str, index: int | None = None) -> None:
        """End a request, or one of its answers."""
        self._send(lambda engine: engine.abort(request_id, index))

    def _send(self, command: Command) -> None:
        if self._death is not None or self._closing:
            raise EngineStoppedError(self._death or "the engine is closed")
        self._commands.append(command)
        self._wake.set()

    def close(self) -> None:
        """Stop after the current step and wait for it. Requests that are not done are aborted."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        except Exception as error:
            log.exception("the engine died")
            self._death = f"the engine died: {type(error).__name__}: {error}"
        finally:
            self._engine.close()
            self._on_end(self._death)

    def _turn(self) -> None:
        self._wake.clear()
        while self._commands:
            self._commands.popleft()(self._engine)
        if not self._engine.has_work:
            self._wake.wait()
            return
        if self._engine.is_idle:
            self._wake.wait(self._sleep())
        deltas = self._engine.step()
        if deltas:
            self._on_deltas(deltas)

    def _sleep(self) -> float:
        alarm = self._engine.next_alarm
        remaining = LONGEST_SLEEP if alarm is None else alarm - self._now()
        return min(max(remaining, 0.0), LONGEST_SLEEP)
