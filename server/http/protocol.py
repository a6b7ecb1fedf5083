"""HTTP as the server speaks it: the heads of requests have limits, and nothing is upgraded."""

import asyncio
from asyncio import TimerHandle

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 1 << 16
"""Bytes of a request line and its headers."""
HEAD_SECONDS = 30.0
"""Within which a head comes, counted from the connection or its first byte."""
FRAMING = (b"content-length", b"transfer-encoding")


class BoundedHttp(HttpToolsProtocol):
    """One connection.

    A request that offers another protocol, as some clients do with every first one, is answered
    in this one; the parser would leave its body out.
    """

    _head: int | None = None
    _timer: TimerHandle | None = None
    _is_resumed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._resume(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("This is no valid HTTP request.")
        else:
            self._measure(len(data))

    def _measure(self, size: int) -> None:
        """Count what came of a head that is not complete."""
        if self._head is None:
            return
        self._head += size
        if self._head > MAX_HEAD:
            self.send_400_response(f"The head of the request is larger than {MAX_HEAD} bytes.")

    def on_message_begin(self) -> None:
        if not self._is_resumed:
            self._head = 0
            self._wait_for_head()
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_resumed:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_resumed:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_resumed:
            self._is_resumed = False
            return
        self._head = None
        self._stop_waiting()
        super().on_headers_complete()

    def _resume(self, rest: bytes) -> None:
        """Go on behind the head with a parser that has not seen the offer."""
        framing = [name + b": " + value for name, value in self.headers if name in FRAMING]
        assert self.cycle is not None, "the head is complete"
        self.cycle.more_body = True
        self.parser = httptools.HttpRequestParser(self)
        self._is_resumed = True
        self.data_received(b"\r\n".join([b"POST / HTTP/1.1", *framing, b"", b""]) + rest)

    def _wait_for_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
