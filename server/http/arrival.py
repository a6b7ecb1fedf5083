"""A caller, from what ASGI tells of a request."""

import time
from collections.abc import Iterable
from types import MappingProxyType

from starlette.types import Scope

from jackfield.core.api.identity import Caller


def caller_of(scope: Scope) -> Caller:
    """Who sent the request, as far as its head says."""
    found: dict[str, str] = {}
    for name, value in _decoded(scope["headers"]):
        found[name] = f"{found[name]}, {value}" if name in found else value
    client = scope.get("client")
    return Caller(
        _bearer(found.get("authorization", "")),
        MappingProxyType(found),
        client[0] if client else "",
        scope["path"],
        time.monotonic(),
    )


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[str, str]]:
    """Values may be any bytes; those that are no UTF-8 come back with `surrogateescape`."""
    for name, value in headers:
        yield name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape")


def _bearer(credential: str) -> str | None:
    scheme, _, key = credential.partition(" ")
    key = key.strip()
    return key if key and scheme.lower() == "bearer" else None
