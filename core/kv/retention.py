"""What is kept of a request that lets its blocks go: the fold over retention plugins."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from jackfield.core.api import Keep, Released
from jackfield.core.kv.contained import Hook

NO_OPINION = Keep()


class Retention:
    """Asks all implementations of `retain`; an answer out of contract is ignored."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = list(hooks)

    @property
    def asks(self) -> bool:
        """Whether there is anybody to ask."""
        return bool(self._hooks)

    def ask(self, released: Released) -> Keep:
        """What becomes of the blocks of one request."""
        keep = NO_OPINION
        for guard, call in self._hooks:
            if not guard.off:
                keep = fold(keep, guard.ask(NO_OPINION, _one, call, (released,)))
        return keep


def fold(first: Keep, second: Keep) -> Keep:
    """Pin over drop over keep, the largest priority, the longest time."""
    times = [keep.ttl for keep in (first, second) if keep.ttl is not None]
    pin = first.pin or second.pin
    return Keep(
        pin=pin,
        drop=(first.drop or second.drop) and not pin,
        priority=max(first.priority, second.priority),
        ttl=max(times, default=None),
    )


def _one(answer: Any) -> Keep:
    (keep,) = answer
    if not isinstance(keep, Keep):
        raise ValueError(f"it returned {keep!r}, which is no Keep")
    if type(keep.priority) is not int:
        raise ValueError(f"its priority {keep.priority!r} is no integer")
    if keep.ttl is not None and not (isfinite(keep.ttl) and keep.ttl >= 0):
        raise ValueError(f"its ttl {keep.ttl!r} is no number of seconds")
    return keep
