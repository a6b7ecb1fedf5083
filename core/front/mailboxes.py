"""Brings news from the engine's thread to the streams of one event loop."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from jackfield.core.api import EngineStoppedError, RequestError
from jackfield.core.engine.messages import Delta

News = Delta | Exception


class Mailbox:
    """News of one request. sent: the engine has it. aborted: the caller ended it before that."""

    def __init__(self) -> None:
        self.sent = False
        self.aborted = False
        self._queue: asyncio.Queue[News] = asyncio.Queue()

    def put(self, news: News) -> None:
        """In the event loop only."""
        self._queue.put_nowait(news)

    async def take(self) -> list[News]:
        """Everything that is there; waits until there is something."""
        news = [await self._queue.get()]
        while not self._queue.empty():
            news.append(self._queue.get_nowait())
        return news


class Mailboxes:
    """One per request that somebody follows. The `Listener` of an engine."""

    def __init__(self, owner: str) -> None:
        """owner: who belongs to one loop, for messages."""
        self._owner = owner
        self._boxes: dict[str, Mailbox] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._boxes)

    def bind(self) -> None:
        """Belong to the running loop. Raises `EngineStoppedError` if it is another one already."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise EngineStoppedError(
                f"this {self._owner} belongs to another loop; make one per loop"
            )

    def open(self, request_id: str) -> Mailbox:
        """Raises `RequestError` if somebody has that name."""
        if request_id in self._boxes:
            raise RequestError(f"request id {request_id!r} is in use", param="request_id")
        box = self._boxes[request_id] = Mailbox()
        return box

    def of(self, request_id: str) -> Mailbox | None:
        """The open mailbox of that name."""
        return self._boxes.get(request_id)

    def close(self, request_id: str) -> None:
        """Further news are dropped."""
        del self._boxes[request_id]

    def on_deltas(self, deltas: Sequence[Delta]) -> None:
        """Called in the engine's thread."""
        self._call(self._dispatch, deltas)

    def on_refused(self, request_id: str, error: Exception) -> None:
        """Called in the engine's thread."""
        self._call(self._put, request_id, error)

    def on_end(self, death: str | None) -> None:
        """Called in the engine's thread."""
        self._call(self._tell_all, death or "the engine is closed")

    def _call(self, act: Callable[..., None], *arguments: Any) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(act, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():  # with the loop its streams are gone
                raise

    def _dispatch(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            self._put(delta.id, delta)

    def _put(self, request_id: str, news: News) -> None:
        box = self._boxes.get(request_id)
        if box is not None:
            box.put(news)

    def _tell_all(self, reason: str) -> None:
        for box in self._boxes.values():
            box.put(EngineStoppedError(reason))
