"""An engine in a thread of its own, for callers in another."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from jackfield.core.api import EngineStoppedError, FinishReason
from jackfield.core.engine.decisions import Decision
from jackfield.core.engine.door import DoorLimits
from jackfield.core.engine.listing import Query, RequestPage, list_requests
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.messages import NewRequest
from jackfield.core.engine.snapshot import Snapshot, take_snapshot
from jackfield.core.engine.transferring import LONGEST_WAIT
from jackfield.core.front.running import Health, Listener

log = logging.getLogger("jackfield.engine")
T = TypeVar("T")
Command = Callable[[Engine], None]
LONGEST_SLEEP = 1.0


class EngineThread:
    """Runs the engine's steps, and calls the listener in its thread. A `RunningEngine`."""

    def __init__(self, engine: Engine, now: Callable[[], float], listener: Listener) -> None:
        self._engine = engine
        self._now = now
        self._listener = listener
        self._commands: deque[Command] = deque()
        self._wake = threading.Event()
        self._asked: set[Future[Any]] = set()
        self._closing = False
        self._death: str | None = None
        self._began: float | None = None
        self._thread = threading.Thread(target=self._run, name="jackfield-engine", daemon=True)
        self._thread.start()

    @property
    def limits(self) -> DoorLimits:
        """Those of the engine."""
        return self._engine.door_limits

    def add(self, new: NewRequest) -> None:
        """Hand a request over. The listener hears of it if it does not fit."""

        def command(engine: Engine) -> None:
            try:
                engine.add(new)
            except Exception as error:
                self._listener.on_refused(new.id, error)

        self._send(command)

    def abort(
        self,
        request_id: str,
        index: int | None = None,
        finish: FinishReason = FinishReason.ABORT,
    ) -> None:
        """End a request, or one of its answers."""
        self._send(lambda engine: engine.abort(request_id, index, finish))

    def explain(self, request_id: str) -> "Future[list[Decision]]":
        """Why the request waited, ran, lost its seat or ended."""
        return self._ask(lambda engine: engine.explain(request_id))

    def requests(self, query: Query) -> "Future[RequestPage]":
        """Who is in the engine."""
        return self._ask(lambda engine: list_requests(engine, query))

    def reset_prefix_cache(self) -> "Future[bool]":
        """Forget all cached blocks."""
        return self._ask(lambda engine: engine.reset_prefix_cache())

    def _ask(self, question: Callable[[Engine], T]) -> "Future[T]":
        found: Future[T] = Future()
        self._asked.add(found)
        found.add_done_callback(self._asked.discard)
        self._send(lambda engine: found.set_result(question(engine)))
        return found

    def snapshot(self) -> Snapshot:
        """The counters and gauges as they are."""
        return take_snapshot(self._engine)

    def health(self) -> Health:
        """Whether the thread still runs steps."""
        began = self._began
        reason = self._death or ("the engine is closed" if self._closing else self._engine.end)
        return Health(reason, 0.0, 0.0 if began is None else max(self._now() - began, 0.0))

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
        except EngineStoppedError as error:
            self._death = str(error)
        except Exception as error:
            log.exception("the engine died")
            self._death = f"the engine died: {type(error).__name__}: {error}"
        finally:
            self._began = None
            self._engine.close()
            self._listener.on_end(self._death)
            for found in list(self._asked):
                found.set_exception(EngineStoppedError(self._death or "the engine is closed"))

    def _turn(self) -> None:
        self._wake.clear()
        while self._commands:
            self._commands.popleft()(self._engine)
        if not self._engine.has_work:
            if not self._wake.wait(LONGEST_WAIT if self._engine.has_transfers else None):
                self._engine.end_transfers()
            return
        if self._engine.is_idle:
            self._wake.wait(self._sleep())
        self._began = self._now()
        deltas = self._engine.step()
        self._began = None
        if self._engine.end is not None:  # which is what every caller is told then
            raise EngineStoppedError(self._engine.end)
        if deltas:
            self._listener.on_deltas(deltas)

    def _sleep(self) -> float:
        alarm = self._engine.next_alarm
        remaining = LONGEST_SLEEP if alarm is None else alarm - self._now()
        return min(max(remaining, 0.0), LONGEST_SLEEP)
