"""The frames of a stream: what its chunks share is encoded once."""

from typing import Any

from jackfield.server.http.json_text import dump

DONE = b"data: [DONE]\n\n"


class Envelope:
    """usage: whether the stream counts its tokens at the end; then every other chunk says null."""

    def __init__(self, shared: dict[str, Any], *, usage: bool) -> None:
        self._head = b"data: " + dump(shared)[:-1] + b',"choices":['
        self._tail = b'],"usage":null' if usage else b"]"

    def chunk(self, choice: bytes, further: bytes = b"") -> bytes:
        """One chunk with one choice, which is encoded already. further: `,"name":value`."""
        return self._head + choice + self._tail + further + b"}\n\n"

    def usage(self, usage: dict[str, Any]) -> bytes:
        """The chunk without a choice that counts."""
        return self._head + b'],"usage":' + dump(usage) + b"}\n\n"


def event(document: dict[str, Any]) -> bytes:
    """Any other frame."""
    return b"data: " + dump(document) + b"\n\n"
