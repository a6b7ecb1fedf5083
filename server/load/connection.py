"""A keep-alive connection that does as little as possible while it measures."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

import httptools

from jackfield.core.api import ConfigError
from jackfield.server.load.exchange import Exchange, Piece

PORTS = {"http": 80, "https": 443}


class Target(NamedTuple):
    """A server. path: what goes before every path. headers: lines of every request."""

    host: str
    port: int
    tls: bool
    path: str
    headers: bytes

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str]) -> Self:
        """From a URL such as "http://127.0.0.1:8000". Raises `ConfigError`."""
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ConfigError(f"the URL {url!r} should look like http://127.0.0.1:8000")
        given = {"host": parts.netloc, **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        port = parts.port or PORTS[parts.scheme]
        tls = parts.scheme == "https"
        return cls(parts.hostname, port, tls, parts.path.rstrip("/"), lines.encode())

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of a request with a JSON body, or with none."""
        head = f"{method} {self.path}{path} HTTP/1.1\r\n".encode() + self.headers
        if body:
            head += b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
        return head + b"\r\n" + body


class Connection(asyncio.Protocol):
    """One request at a time. Made by `connect`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[bool] | None = None
        self._pieces: list[Piece] = []
        self._status = 0

    async def ask(self, request: bytes) -> Exchange:
        """Send a request and wait for the end of its response, or of the connection."""
        assert self._transport is not None and self._done is None, "connected, and free"
        self._done, self._pieces, self._status = self._loop.create_future(), [], 0
        self._parser = httptools.HttpResponseParser(self)
        started = self._loop.time()
        self._transport.write(request)
        try:
            whole = not self._transport.is_closing() and await self._done
        finally:
            self._done = None
        return Exchange(started, self._status, self._pieces, self._loop.time(), whole)

    @property
    def is_open(self) -> bool:
        """Whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(False)

    def data_received(self, data: bytes) -> None:
        if self._done is not None:
            self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._pieces.append((self._loop.time(), body))

    def on_message_complete(self) -> None:
        self._finish(True)

    def _finish(self, whole: bool) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(whole)


async def connect(target: Target) -> Connection:
    """A new connection. Raises OSError."""
    loop = asyncio.get_running_loop()
    tls = True if target.tls else None
    _, made = await loop.create_connection(Connection, target.host, target.port, ssl=tls)
    return made
