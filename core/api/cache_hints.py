"""What a request may ask of the cache."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jackfield.core.api.errors import RequestError, nearest

MAX_TTL = 1e9
MAX_SALT = 256
MAX_SHARED_TOKENS = 2**31 - 1


class CacheHints(NamedTuple):
    """What a request asks of the cache.

    ttl: seconds for which its blocks should be kept, after which they are dropped. pin: keep them
    while anything else can go. salt: shares blocks only with requests of the same salt. None of
    them crosses tenants. shared_prefix_tokens: how many tokens at the start of the prompt are no
    secret of the tenant and may be shared with everybody who says so too; None = what the
    configuration says.
    """

    ttl: float | None = None
    pin: bool = False
    salt: str = ""
    shared_prefix_tokens: int | None = None


NO_HINTS = CacheHints()


def checked_hints(given: CacheHints | Mapping[str, Any]) -> CacheHints:
    """The hints, or a mapping of their fields. Raises `RequestError` that names the field."""
    hints = given if isinstance(given, CacheHints) else _hints_of(given)
    for name, (fits, needed) in _FITS.items():
        value = getattr(hints, name)
        if not fits(value):
            raise RequestError(f"cache.{name} is {value!r:.80}; {needed}", param=f"cache.{name}")
    return hints


def _hints_of(given: Any) -> CacheHints:
    if not isinstance(given, Mapping):
        raise RequestError(
            f"cache must be CacheHints or a mapping, not a {type(given).__name__}", param="cache"
        )
    for name in given:
        if name not in CacheHints._fields:
            hint = nearest(str(name), CacheHints._fields)
            raise RequestError(f"cache has no field {name!r:.80}. {hint}", param="cache")
    return CacheHints(**given)


def _is_ttl(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and math.isfinite(value) and 0 < value <= MAX_TTL)


def _is_salt(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > MAX_SALT:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _is_count(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value <= MAX_SHARED_TOKENS)


_FITS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "ttl": (_is_ttl, f"it must be a number of seconds above 0, at most {MAX_TTL:g}, or None"),
    "pin": (lambda value: isinstance(value, bool), "it must be True or False"),
    "salt": (_is_salt, f"it must be a text of at most {MAX_SALT} characters"),
    "shared_prefix_tokens": (
        _is_count, f"it must be an integer from 0 to {MAX_SHARED_TOKENS}, or None"
    ),
}  # fmt: skip
