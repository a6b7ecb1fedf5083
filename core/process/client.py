"""An engine in a process of its own, for the process that serves callers."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from math import inf
from subprocess import Popen, TimeoutExpired
from typing import Any

from jackfield.core.api import ConfigError, EngineStoppedError, FinishReason
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.engine.decisions import Decision
from jackfield.core.engine.door import Door, DoorLimits
from jackfield.core.engine.listing import Query, RequestPage
from jackfield.core.engine.messages import NewRequest
from jackfield.core.engine.snapshot import Snapshot
from jackfield.core.front.running import Health, Listener
from jackfield.core.host.sources import Resolved
from jackfield.core.process.channel import Channel
from jackfield.core.process.spawn import ending, spawn
from jackfield.core.wire.codec import (
    decode_news,
    deltas_of,
    encode,
    encode_request,
    error_of,
)
from jackfield.core.wire.messages import (
    Abort,
    Advanced,
    Ask,
    Deltas,
    Died,
    Explain,
    Explained,
    Failed,
    Heartbeat,
    Hello,
    Listed,
    News,
    Refused,
    Reset,
    Shutdown,
    Start,
    WasReset,
    Worked,
    Working,
)

log = logging.getLogger("jackfield.engine")
STOP_SECONDS = 10.0
SILENT_SECONDS = 2.0
"""A process that says nothing for so long, eight heartbeats, is not going to stop by itself."""
LOOK_SECONDS = 0.1
CLOSED = "the engine is closed"


class EngineProcess:
    """Starts the process at once; `start` waits until it is ready. A `RunningEngine`.

    The listener is called in a thread that lives as long as the process.
    """

    def __init__(self, resolved: Resolved, listener: Listener, progress: Progress) -> None:
        """Raises `ConfigError` for a configuration that cannot be sent."""
        self._start = _start(resolved)
        self._listener = listener
        self._progress = progress
        self._ready: Future[Hello] = Future()
        self._spawned: Future[tuple[Popen[bytes], Channel]] = Future()
        self._asked: dict[int, Future[Any]] = {}
        self._tickets = count()
        self._closing = False
        self._death: str | None = None
        self._heard = time.monotonic()
        self._busy = 0.0
        self._thread = threading.Thread(target=self._run, name="jackfield-client", daemon=True)
        self._thread.start()
        self._process, self._channel = self._spawned.result()

    def start(self) -> Hello:
        """What the engine says when it is ready. Raises the `JackfieldError` that it failed with.

        After an exception, `KeyboardInterrupt` included, the process has ended.
        """
        try:
            hello = self._ready.result()
        except BaseException:
            self.close()
            raise
        limits = hello.limits
        self._limits = DoorLimits(
            limits.vocab_size, limits.max_model_len, limits.pool_tokens, limits.block_size,
            limits.shares_blocks,
        )  # fmt: skip
        self._door = Door(self._limits)
        return hello

    @property
    def limits(self) -> DoorLimits:
        """What the engine said when it was ready."""
        return self._limits

    def add(self, new: NewRequest) -> None:
        """Hand a request over. Raises `RequestError` for what can never work."""
        if self._closing:
            raise EngineStoppedError(CLOSED)
        self._door.check(new)
        self._send(encode_request(new, time.monotonic()))

    def abort(
        self,
        request_id: str,
        index: int | None = None,
        finish: FinishReason = FinishReason.ABORT,
    ) -> None:
        """End a request, or one of its answers."""
        self._send(encode(Abort(request_id, index, finish)))

    def explain(self, request_id: str) -> "Future[list[Decision]]":
        """Why the request waited, ran, lost its seat or ended; oldest first."""
        found = Future[list[Decision]]()
        self._ask(found, lambda ticket: Explain(ticket, request_id))
        return found

    def requests(self, query: Query) -> "Future[RequestPage]":
        """Who is in the engine."""
        found = Future[RequestPage]()
        self._ask(found, lambda ticket: Ask(ticket, query))
        return found

    def reset_prefix_cache(self) -> "Future[bool]":
        """Forget all cached blocks."""
        found = Future[bool]()
        self._ask(found, Reset)
        return found

    def _ask(
        self, found: "Future[Any]", question: Callable[[int], Ask | Explain | Reset]
    ) -> None:
        ticket = next(self._tickets)
        self._asked[ticket] = found
        try:
            self._send(encode(question(ticket)))
        except EngineStoppedError:
            del self._asked[ticket]
            raise

    def snapshot(self) -> Snapshot:
        """The counters and gauges of the last heartbeat."""
        return self._latest

    def health(self) -> Health:
        """What is known from the last heartbeat."""
        reason = self._death or (CLOSED if self._closing else None)
        return Health(reason, time.monotonic() - self._heard, self._busy)

    def _send(self, message: bytes) -> None:
        if self._death is not None:
            raise EngineStoppedError(self._death)
        self._channel.send(message)

    def close(self, *, drain: bool = False) -> None:
        """Stop the process and wait for its end. drain: it finishes all requests before.

        A process that gives no sign of life is killed, one that drains only after a longer time.
        """
        self._closing = True
        if not self._ready.done() or self._ready.exception() is not None:
            self._process.kill()
        self._channel.send(encode(Shutdown(drain)))
        self._wait(*((inf, STOP_SECONDS) if drain else (STOP_SECONDS, SILENT_SECONDS)))
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()

    def _wait(self, seconds: float, silence: float) -> None:
        """For the end of the process, at most so long, and while it is not silent for so long."""
        deadline = time.monotonic() + seconds
        while self._thread.is_alive():
            now = time.monotonic()
            if now > deadline or now - self._heard > silence:
                return
            self._thread.join(LOOK_SECONDS)

    def _run(self) -> None:
        # The process is started here because the system ends it together with this thread.
        try:
            process, connection = spawn()
        except BaseException as error:
            self._spawned.set_exception(error)
            return
        channel = Channel(connection)
        channel.send(self._start)
        self._spawned.set_result((process, channel))
        try:
            self._listen(channel)
        except Exception as error:
            log.exception("the engine's process cannot be understood")
            self._death = f"the engine was lost: {type(error).__name__}: {error}"
            process.kill()
        self._end(_reap(process))
        channel.close(0.0)

    def _listen(self, channel: Channel) -> None:
        """Until the process has gone."""
        try:
            while True:
                for message in channel.receive(None):
                    self._take(decode_news(message))
        except EOFError:
            return

    def _take(self, news: News) -> None:
        self._heard = time.monotonic()
        match news:
            case Deltas():
                self._listener.on_deltas(deltas_of(news))
            case Heartbeat():
                self._busy, self._latest = news.busy, news.snapshot
            case Refused():
                self._listener.on_refused(news.id, error_of(news))
            case Explained():
                self._asked.pop(news.ticket).set_result(news.decisions)
            case Listed():
                self._asked.pop(news.ticket).set_result(news.page)
            case WasReset():
                self._asked.pop(news.ticket).set_result(news.done)
            case Died():
                self._death = news.reason
            case Hello():
                self._latest = news.snapshot
                self._ready.set_result(news)
            case Failed():
                self._ready.set_exception(error_of(news))
            case _:
                self._show(news)

    def _show(self, news: Working | Advanced | Worked) -> None:
        match news:
            case Working():
                self._progress.start(news.label, news.total)
            case Advanced():
                self._progress.advance(news.count)
            case Worked():
                self._progress.finish()

    def _end(self, code: int) -> None:
        if self._death is None:
            reason = f"the engine's process ended {ending(code)}"
            self._death = CLOSED if self._closing else reason
        error = EngineStoppedError(self._death)
        if not self._ready.done():
            self._ready.set_exception(error)
        self._listener.on_end(self._death)
        while self._asked:
            self._asked.popitem()[1].set_exception(error)


def _start(resolved: Resolved) -> bytes:
    """What the engine is told; how it is served, and to whom, is none of its business."""
    config = resolved.config.model_dump(exclude={"server"})
    origins = {
        key: origin for key, origin in resolved.origins.items() if not key.startswith("server.")
    }
    try:
        return encode(Start(config, origins))
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"the configuration cannot be sent to the engine's process: {error}; use numbers, "
            f"texts, lists and tables"
        ) from error


def _reap(process: "Popen[bytes]") -> int:
    """The exit code of a process that has closed its socket, so that it is ending."""
    try:
        return process.wait(STOP_SECONDS)
    except TimeoutExpired:
        process.kill()
        return process.wait()
