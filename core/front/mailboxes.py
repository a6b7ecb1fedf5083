"""Brings news from the engine's thread to the streams of one event loop."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from jackfield.core.api import EngineStoppedError, RequestError
from jackfield.core.engine.messages import Delta

PER_TURN = 32
"""Deltas that are delivered in one turn of the event loop."""
News = Delta | Exception


class Mailbox:
    """News of one request. aborted: the caller ended it before the engine had it.

    The engine ends each of its answers once, whatever happens; until then it may still speak of
    the request, also when nobody listens any more.
    """

    def __init__(self) -> None:
        self.aborted = False
        self._unended = 0
        self._over = asyncio.Event()
        self._news: list[News] = []
        self._reader: asyncio.Future[None] | None = None

    def sent(self, answers: int) -> None:
        """The engine has the request from now on, and owes so many ends."""
        self._unended = answers

    @property
    def is_awaited(self) -> bool:
        """Whether the engine has the request and has not ended all of its answers."""
        return self._unended > 0

    def put(self, news: News) -> None:
        """In the event loop only. An exception ends all answers."""
        self._news.append(news)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        if isinstance(news, Exception):
            self._unended = 0
        elif news.finish is not None:
            self._unended -= 1
        if self._unended <= 0:
            self._over.set()

    async def take(self) -> list[News]:
        """Everything that is there; waits until there is something."""
        if not self._news:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        news, self._news = self._news, []
        return news

    async def over(self) -> None:
        """Wait until the engine has said its last about the request."""
        await self._over.wait()


class Mailboxes:
    """One per request that somebody follows, or that the engine still speaks of. A `Listener`."""

    def __init__(self, owner: str) -> None:
        """owner: who belongs to one loop, for messages."""
        self._owner = owner
        self._open: dict[str, Mailbox] = {}
        self._leaving: dict[str, Mailbox] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._undelivered: deque[Delta] = deque()
        self._is_delivering = False

    def __len__(self) -> int:
        return len(self._open) + len(self._leaving)

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
        """Raises `RequestError` if somebody follows a request of that name."""
        if request_id in self._open:
            raise RequestError(f"request id {request_id!r} is in use", param="request_id")
        box = self._open[request_id] = Mailbox()
        return box

    def of(self, request_id: str) -> Mailbox | None:
        """The open mailbox of that name."""
        return self._open.get(request_id)

    async def vacant(self, request_id: str) -> None:
        """Wait until the engine has ended the request that had the name before.

        Called between `open` and the moment when the engine gets the name again.
        """
        former = self._leaving.get(request_id)
        if former is not None:
            await former.over()

    def close(self, request_id: str) -> None:
        """Nobody follows the request any more: further news of it are dropped."""
        box = self._open.pop(request_id)
        if box.is_awaited:
            assert request_id not in self._leaving, f"{request_id} was sent twice"
            self._leaving[request_id] = box

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
        self._undelivered.extend(deltas)
        if not self._is_delivering:
            self._deliver()

    def _deliver(self) -> None:
        """A part of the news in each turn of the loop, so that nobody else waits for all of it."""
        undelivered = self._undelivered
        for _ in range(min(len(undelivered), PER_TURN)):
            delta = undelivered.popleft()
            self._put(delta.id, delta)
        self._is_delivering = bool(undelivered)
        if self._is_delivering:
            asyncio.get_running_loop().call_soon(self._deliver)

    def _put(self, request_id: str, news: News) -> None:
        # The engine gets a name again only when the former request is over, so news are of that.
        box = self._leaving.get(request_id) or self._open.get(request_id)
        if box is None:
            return
        box.put(news)
        if not box.is_awaited and request_id in self._leaving:
            del self._leaving[request_id]

    def _tell_all(self, reason: str) -> None:
        while self._undelivered:
            self._deliver()
        for box in (*self._leaving.values(), *self._open.values()):
            box.put(EngineStoppedError(reason))
        self._leaving.clear()
