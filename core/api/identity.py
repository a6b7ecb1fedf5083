"""What the server knows of a caller before it reads the request."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Caller(NamedTuple):
    """Somebody who sent a request over HTTP. It shows neither key nor headers when it is printed.

    key: the credential after "Bearer", as it was sent; None = none was sent. headers: by their
    names in lower case; a repeated one is joined by commas. peer: the client's address, or "".
    path: of the URL. now: the clock of deadlines, in seconds.
    """

    key: str | None = None
    headers: Mapping[str, str] = NO_HEADERS
    peer: str = ""
    path: str = "/"
    now: float = 0.0

    def __repr__(self) -> str:
        key = None if self.key is None else "***"
        return f"Caller(key={key}, peer={self.peer!r}, path={self.path!r}, now={self.now!r})"
