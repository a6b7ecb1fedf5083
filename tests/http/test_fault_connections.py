"""Connections that are slow, endless or no HTTP: they end, and hold nobody up meanwhile."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield.server.http import protocol
from jackfield.server.http.settings import HttpSettings

PATH = "/v1/completions"
BODY = b'{"prompt":"the cat","max_tokens":2}'
START = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def hasty(folder: Path, serve: Any) -> Iterator[Any]:
    """It waits for nothing."""
    settings = HttpSettings(body_seconds=0.2, max_body=10_000)
    with (
        pytest.MonkeyPatch.context() as patch,
        serve(folder, settings) as site,
        site.accompanied(),
    ):
        patch.setattr(protocol, "HEAD_SECONDS", 0.2)
        yield site


def connected(site: Any, data: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", site.port), timeout=10)
    made.sendall(data)
    return made


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    with connection:
        found = b""
        while True:
            try:
                part = connection.recv(1 << 16)
            except ConnectionResetError:
                return found
            if not part:
                return found
            found += part


def error(found: bytes) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(found.partition(b"\r\n\r\n")[2])["error"]
    return body


@pytest.mark.parametrize(
    "start",
    [CHUNKED, CHUNKED + b"5\r\n{", START + b"Content-Length: 50\r\n\r\n{", 
     START + b"Content-Length: 50\r\nExpect: 100-continue\r\n\r\n"],
)  # fmt: skip
def test_a_body_that_does_not_come(hasty: Any, start: bytes) -> None:
    found = rest(connected(hasty, start)).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close\r\n" in found
    told = error(found)
    assert told["code"] == "request_timeout" and "0.2 seconds" in told["message"]


@pytest.mark.parametrize("start", [b"", b"P", START, START + b"X-A: b"])
def test_a_head_that_does_not_come(hasty: Any, start: bytes) -> None:
    assert rest(connected(hasty, start)) == b""


def test_many_slow_clients_hold_nobody_up(site: Any) -> None:
    with site.accompanied():
        slow = [connected(site, CHUNKED + b"5\r\n{") for _ in range(50)]
        assert site.post(PATH, prompt="x", max_tokens=1).status_code == 200
        for one in slow:
            one.close()
    site.settled()


def test_a_body_without_an_end(hasty: Any) -> None:
    connection = connected(hasty, CHUNKED)
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    try:
        for _ in range(100_000):
            connection.sendall(chunk)
    except (ConnectionResetError, BrokenPipeError):
        connection.close()
    else:
        raise AssertionError("400 MB were read")


def test_a_body_that_is_too_large(hasty: Any) -> None:
    """One that is told is refused, and the connection goes on."""
    assert "10000 bytes" in hasty.refusal(hasty.post(PATH, prompt="x" * 20_000), None, 413)
    head = START + b"Content-Length: 20000\r\n\r\n" + b"x" * 20_000
    with connected(hasty, head) as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
        connection.sendall(START + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "head",
    [
        START + b"X-A: " + b"b" * 300_000, START + b"X-A: b\r\n" * 40_000,
        b"GET /" + b"a" * 300_000, b"G" * 300_000, START + b"a" * 300_000,
    ],
)  # fmt: skip
def test_a_head_without_an_end(site: Any, head: bytes) -> None:
    connection = socket.create_connection(("127.0.0.1", site.port), timeout=10)
    try:
        connection.sendall(head)
    except (ConnectionResetError, BrokenPipeError):
        connection.close()
        return
    found = rest(connection)
    assert found == b"" or found.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n",
        START + b"Content-Length: -5\r\n\r\n", START + b"Content-Length: 5x\r\n\r\n",
        START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNKED + b"ZZ\r\n",
        b"GET /live HTTP/1.1\r\nx y: 1\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)  # fmt: skip
def test_no_http(site: Any, data: bytes) -> None:
    found = rest(connected(site, data))
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.endswith(b"\r\n\r\nThis is no valid HTTP request.")


@pytest.mark.parametrize("other", [b"h2c", b"websocket"])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_an_offer_of_another_protocol_is_not_taken(
    site: Any, other: bytes, apart: bool, chunked: bool
) -> None:
    """Some clients make it with every first request; they are answered, with their body read."""
    framing, body = b"Content-Length: %d" % len(BODY), BODY
    if chunked:
        framing, body = b"Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMA\r\nUpgrade: " + other
    head = b"\r\n".join([START[:-2], offer, framing, b"", b""])
    with connected(site, head if apart else head + body) as connection:
        if apart:
            site.until(lambda: site.http.get("/live").status_code == 200)
            connection.sendall(body)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        connection.sendall(START + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_a_get_with_such_an_offer(site: Any) -> None:
    head = b"GET /live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    with connected(site, head) as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b'"version"' in rest(connection)
