"""Whole messages over a stream socket between two processes of one machine."""

import select
import socket
import threading
from contextlib import suppress
from struct import Struct

LENGTH = Struct("<I")
CHUNK = 1 << 18
HUNG_UP = getattr(select, "POLLRDHUP", 0)  # without it the system reports POLLHUP unasked


class Channel:
    """One thread receives, any thread sends. Sending never waits for the other process.

    The end of the other process is told by `receive` only: what is sent afterwards is dropped.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._lock = threading.Lock()
        self._sender: threading.Thread | None = None

    def fileno(self) -> int:
        """For a `poll` over several of them; readable = `receive` gives something, or raises."""
        return self._socket.fileno()

    def send(self, message: bytes) -> None:
        """Hand the message over. What the system does not take at once, a thread finishes."""
        with self._lock:
            self._outgoing += LENGTH.pack(len(message))
            self._outgoing += message
            if self._sender is None:
                self._push()
                if self._outgoing:
                    self._sender = threading.Thread(target=self._finish, daemon=True)
                    self._sender.start()

    def _push(self) -> None:
        try:
            sent = self._socket.send(self._outgoing, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._outgoing)  # nobody will read it
        del self._outgoing[:sent]

    def _finish(self) -> None:
        while True:
            _poll(self._socket, select.POLLOUT, None)
            with self._lock:
                self._push()
                if not self._outgoing:
                    self._sender = None
                    return

    def receive(self, timeout: float | None) -> list[bytes]:
        """The messages that are there, after at most that many seconds; None = wait for ever.

        Raises `EOFError` when the other process is gone.
        """
        if not _poll(self._socket, select.POLLIN, timeout):
            return []
        try:
            data = self._socket.recv(CHUNK)
        except OSError as error:
            raise EOFError("the other process has gone") from error
        if not data:
            raise EOFError("the other process has gone")
        self._incoming += data
        return self._whole()

    def _whole(self) -> list[bytes]:
        found, start, size = [], 0, len(self._incoming)
        while size - start >= LENGTH.size:
            end = start + LENGTH.size + LENGTH.unpack_from(self._incoming, start)[0]
            if end > size:
                break
            found.append(bytes(self._incoming[start + LENGTH.size : end]))
            start = end
        del self._incoming[:start]
        return found

    def is_broken(self, timeout: float) -> bool:
        """Whether the other process goes within that time. Any thread may ask."""
        return _poll(self._socket, HUNG_UP, timeout)

    def cut(self) -> None:
        """Both sides are told that the other has gone. `close` comes later."""
        with suppress(OSError):  # it may have
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self, timeout: float) -> None:
        """Wait so long for what was sent to be taken, then close."""
        sender = self._sender
        if sender is not None:
            sender.join(timeout)
        self._socket.close()


def _poll(connection: socket.socket, events: int, timeout: float | None) -> bool:
    poll = select.poll()
    poll.register(connection, events)
    return bool(poll.poll(None if timeout is None else timeout * 1000))
