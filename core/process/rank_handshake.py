"""Two hosts that know the same secret convince each other of it, before either listens to more."""

import hmac
import secrets
import socket
from hashlib import sha256

from jackfield.core.api import ConfigError

NONCE_BYTES = PROOF_BYTES = 32
KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))
LONGEST_SILENCE = 10_000
"""Milliseconds for which the other host may not confirm what it was sent."""


class Stranger(ConfigError):
    """The other side does not know the secret."""


def receive_guest(connection: socket.socket, token: str) -> None:
    """The side of who was called. Raises `Stranger`, or `OSError` where the other one goes."""
    mine = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(mine)
    answer = _read(connection, NONCE_BYTES + PROOF_BYTES)
    theirs, proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(token, b"guest", mine, theirs)):
        raise Stranger("somebody without parallel.token wanted to join the ranks")
    connection.sendall(_proof(token, b"host", mine, theirs))


def visit_host(connection: socket.socket, token: str) -> None:
    """The side of who calls. Raises the same."""
    theirs, mine = _read(connection, NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
    connection.sendall(mine + _proof(token, b"guest", theirs, mine))
    try:
        proof = _read(connection, PROOF_BYTES)
    except EOFError as error:
        raise Stranger("the first node has another parallel.token; give all the same") from error
    if not hmac.compare_digest(proof, _proof(token, b"host", theirs, mine)):
        raise Stranger("who answers as the first node does not know parallel.token")


def _proof(token: str, role: bytes, host_nonce: bytes, guest_nonce: bytes) -> bytes:
    return hmac.new(token.encode(), role + host_nonce + guest_nonce, sha256).digest()


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError("the other host has hung up")
        found += part
    return found


def keep_alive(connection: socket.socket) -> None:
    """Small messages go at once, and a host that is gone without a word is missed in seconds."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = (*KEEPALIVE, ("TCP_USER_TIMEOUT", LONGEST_SILENCE))
    for name, value in options:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
