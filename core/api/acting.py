"""What a gateway says, in headers, of the caller it passes on; for plugins that trust it."""

import math
from typing import NamedTuple

from jackfield.core.api.errors import RequestError
from jackfield.core.api.identity import Caller
from jackfield.core.api.request import RequestContext

TENANT = "x-jackfield-tenant"
TIER = "x-jackfield-tier"
PRIORITY = "x-jackfield-priority"
DEADLINE = "x-jackfield-deadline-ms"
GATEWAY_HEADERS = (TENANT, TIER, PRIORITY, DEADLINE)
LONGEST_NAME = 128
LARGEST = 2**31 - 1


class PassedOn(NamedTuple):
    """What the headers say; None = nothing. deadline: as in `RequestContext`."""

    tenant: str | None = None
    tier: str | None = None
    priority: int | None = None
    deadline: float | None = None

    def over(self, context: RequestContext) -> RequestContext:
        """The context with what was said."""
        given = {name: value for name, value in self._asdict().items() if value is not None}
        return context._replace(**given)


def passed_on(caller: Caller) -> PassedOn:
    """Read the headers `GATEWAY_HEADERS`. Raises `RequestError` that names the wrong one.

    Whether they are believed is up to the plugin: whoever can send a request can send these.
    """
    headers = caller.headers
    if not any(name in headers for name in GATEWAY_HEADERS):
        return PassedOn()
    return PassedOn(
        _name(TENANT, headers.get(TENANT)),
        _name(TIER, headers.get(TIER)),
        _priority(headers.get(PRIORITY)),
        _deadline(headers.get(DEADLINE), caller.now),
    )


def _name(header: str, text: str | None) -> str | None:
    if text is not None and not (0 < len(text) <= LONGEST_NAME and text.isprintable()):
        raise RequestError(
            f"the header {header} should be a name of 1 to {LONGEST_NAME} characters", param=header
        )
    return text


def _priority(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= LARGEST):
        raise RequestError(
            f"the header {PRIORITY} should be an integer from {-LARGEST} to {LARGEST}",
            param=PRIORITY,
        )
    return int(text)


def _deadline(text: str | None, now: float) -> float | None:
    if text is None:
        return None
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not 0 < milliseconds <= LARGEST:
        raise RequestError(
            f"the header {DEADLINE} should be a number of milliseconds from now, above 0",
            param=DEADLINE,
        )
    return now + milliseconds / 1000
