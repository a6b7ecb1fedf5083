"""Server-sent events from frames that are bytes already."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jackfield.server.http.connection import unless_gone


class EventStream(Response):
    """first: the frames there are already; rest: the further ones, closed if the client goes.

    Sending it raises `ClientGone` then.
    """

    media_type = "text/event-stream"

    def __init__(
        self, first: bytes, rest: AsyncGenerator[bytes, None], headers: Mapping[str, str]
    ) -> None:
        self.status_code = 200
        self.background = None
        self._first = first
        self._rest = rest
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._rest):
            await unless_gone(receive, self._pump(send))

    async def _pump(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for frames in self._rest:
            await send({"type": "http.response.body", "body": frames, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
