"""Who asks: the plugins of `server.identify`, each called alone and contained."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jackfield.core.api.cache_hints import CacheHints, checked_hints
from jackfield.core.api.errors import RequestError
from jackfield.core.api.identity import Caller
from jackfield.core.api.request import RequestContext, Trust

log = logging.getLogger("jackfield.plugins")
LARGEST = 2**31 - 1
Identifier = tuple[str, Callable[[Caller], Any]]
"""A plugin's name and its `identify`."""


class WrongAnswer(Exception):
    """What a plugin returned is no context; the message says what is wrong, without the value."""


def everybody(caller: Caller) -> RequestContext:
    """Knows whoever comes, as tenant "default"."""
    return RequestContext()


class Identity:
    """Asks one plugin after the other. faults: by plugin.

    What a plugin raises may hold a key, so that only its kind and place are logged, once each.
    """

    def __init__(self, identifiers: Sequence[Identifier]) -> None:
        self._identifiers = tuple(identifiers)
        self.faults: dict[str, int] = {name: 0 for name, _ in identifiers}
        self._told: set[tuple[str, str]] = set()

    def who(self, caller: Caller) -> RequestContext | None:
        """What the first one says that knows the caller. Raises the `RequestError` of a refusal."""
        for name, identify in self._identifiers:
            try:
                found = identify(caller)
                if found is not None:
                    return checked(found)
            except RequestError:
                raise
            except WrongAnswer as error:
                self._fault(name, f"returned {error}")
            except Exception as error:
                self._fault(name, f"raised {_kind(error)}")
        return None

    def _fault(self, plugin: str, what: str) -> None:
        self.faults[plugin] += 1
        if (plugin, what) not in self._told:
            self._told.add((plugin, what))
            log.warning("plugin %s: identify %s; it is taken as not knowing callers", plugin, what)


def _kind(error: Exception) -> str:
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {place}"


def checked(found: Any) -> RequestContext:
    """The context, which nobody can change any more. Raises `WrongAnswer`."""
    if not isinstance(found, RequestContext):
        raise WrongAnswer(f"a {type(found).__name__}, not a RequestContext")
    wrong = [name for name, fits in _FITS.items() if not fits(getattr(found, name))]
    if wrong:
        raise WrongAnswer(f"a RequestContext with a wrong {' and '.join(wrong)}")
    return found._replace(labels=MappingProxyType(dict(found.labels)))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_priority(value: Any) -> bool:
    return type(value) is int and -LARGEST <= value <= LARGEST


def _is_deadline(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value))


def _are_labels(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(one, str) for item in value.items() for one in item
    )


def _are_hints(value: Any) -> bool:
    if not isinstance(value, CacheHints):
        return False
    try:
        return checked_hints(value) is value
    except RequestError:
        return False


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "tenant": _is_text,
    "tier": _is_text,
    "priority": _is_priority,
    "deadline": _is_deadline,
    "labels": _are_labels,
    "trust": lambda value: isinstance(value, Trust),
    "cache": _are_hints,
}
