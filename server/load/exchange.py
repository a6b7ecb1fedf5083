"""One request to a server, and when each piece of the response came."""

from typing import NamedTuple

Piece = tuple[float, bytes]
"""Seconds of the event loop's clock, and what came then."""


class Exchange(NamedTuple):
    """started: when the request was sent. status: 0 if the connection ended before the head.

    whole: whether the response came to its end.
    """

    started: float
    status: int
    pieces: list[Piece]
    ended: float
    whole: bool

    def body(self) -> bytes:
        """What came, joined."""
        return b"".join(data for _, data in self.pieces)
