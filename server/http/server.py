"""Uvicorn around the application: signals, draining, and the exit code."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.server import HANDLED_SIGNALS

from jackfield.core.api.errors import EngineStoppedError
from jackfield.server.http.protocol import BoundedHttp
from jackfield.server.http.service import Service

log = logging.getLogger("jackfield.http")
CUT_OFF = 1
TICK = 0.05
GRACE = 5.0
"""Seconds for the last words of answers that were cut off."""


class HttpServer(uvicorn.Server):
    """Serves until a signal, or until the engine dies.

    The first signal ends listening, and open answers have `drain_timeout` seconds; when they are
    over, or with a second signal, those left end with an error event. `exit_code` afterwards: 0,
    1 if answers were cut off, 6 if the engine died.
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        drain_timeout: float = 30.0,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        """on_start: called once, when clients can connect."""
        config = uvicorn.Config(
            app, loop="uvloop", http=BoundedHttp, ws="none", lifespan="on", log_config=None,
            access_log=False, server_header=False, timeout_graceful_shutdown=None,
        )  # fmt: skip
        super().__init__(config)
        self._service: Service = app.state.service
        self._drain_timeout = drain_timeout
        self._on_start = on_start
        self._hurry = False
        self.exit_code = 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn would raise the signals again at the end, and the exit code were theirs."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._hurry = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        reason = self._service.backend.health().reason
        if reason is not None:
            log.error("no answer is possible any more, the server ends: %s", reason)
            self.exit_code = EngineStoppedError.exit_code
            return True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.draining = True
        if self.server_state.tasks:
            log.warning(
                "stopping: %d open requests have %g s to end; a second signal cuts them off",
                len(self.server_state.tasks),
                self._drain_timeout,
            )
        cutting = asyncio.create_task(self._cut_off())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    async def _cut_off(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_timeout
        while not self._hurry and loop.time() < deadline:
            await asyncio.sleep(TICK)
        self.exit_code = self.exit_code or CUT_OFF
        await self._service.backend.close()
        await asyncio.sleep(GRACE)
        self.force_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A socket that does not listen yet, so clients see no server before there is one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def address(bound: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
