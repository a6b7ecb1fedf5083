"""Evictors that misbehave, for tests of a core that must not believe them.

    for case in hostile_evictors():
        evictor = case.make(space, inner)

All of them are otherwise a plain LRU. What the core should do about it: give up other leaves
instead, count a fault, and harm no request.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from jackfield.core.api import EvictionSpace, Evictor
from jackfield.core.testing.eviction_models import ListLru

FOREIGN = 10**9
"""No block has such an id."""
EVENTS = ("insert", "touch", "update", "evictable", "busy", "remove", "victims")
Answer = Callable[["HostileEvictor", int], Any]
"""The evictor, and how many are wanted -> what `victims` returns."""


class HostileCase(NamedTuple):
    """One misbehaviour, all against the contract."""

    name: str
    make: Callable[[EvictionSpace, Evictor | None], Evictor]

    def __str__(self) -> str:
        return self.name


class HostileEvictor(ListLru):
    """Answers as it likes. gone: the blocks that were removed."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self.gone: list[int] = []

    def remove(self, blocks: Any) -> None:
        super().remove(blocks)
        self.gone += blocks

    def victims(self, count: int, now: float) -> Any:
        return self._answer(self, count)

    def good(self, count: int) -> list[int]:
        """What a plain LRU would say."""
        return list(super().victims(count, 0.0))


def hostile_evictors() -> list[HostileCase]:
    """Every misbehaviour once."""
    answers = [_answering(name, answer) for name, answer in _wrong_answers().items()]
    return [*answers, *map(_raising, EVENTS), _answering("recursion", _deep)]


def _wrong_answers() -> dict[str, Answer]:
    return {
        "foreign": lambda evictor, count: range(FOREIGN, FOREIGN + count),
        "negative": lambda evictor, count: [-1 - block for block in evictor.good(count)],
        "removed": lambda evictor, count: [*evictor.gone, *evictor.good(count)],
        "busy": lambda evictor, count: [b for b in evictor.order if b not in evictor.free][:count],
        "duplicates": lambda evictor, count: evictor.good(1) * count,
        "nothing": lambda evictor, count: [],
        "too few": lambda evictor, count: evictor.good(count)[:-1],
        "too many": lambda evictor, count: evictor.good(10**6),
        "none": lambda evictor, count: None,
        "number": lambda evictor, count: count,
        "nan": lambda evictor, count: [float("nan")] * count,
        "floats": lambda evictor, count: [float(block) for block in evictor.good(count)],
        "texts": lambda evictor, count: [str(block) for block in evictor.good(count)],
        "lists": lambda evictor, count: [[block] for block in evictor.good(count)],
        "booleans": lambda evictor, count: [True] * count,
        "endless": lambda evictor, wanted: count(FOREIGN),
        "breaks off": lambda evictor, count: _breaks_off(evictor.good(count)),
    }


def _breaks_off(blocks: list[int]) -> Iterator[int]:
    yield from blocks[:1]
    raise ValueError("no")


def _answering(name: str, answer: Answer) -> HostileCase:
    return HostileCase(name, lambda space, inner: HostileEvictor(answer))


def _deep(evictor: HostileEvictor, count: int) -> Any:
    return _deep(evictor, count)


def _raising(event: str) -> HostileCase:
    def make(space: EvictionSpace, inner: Evictor | None) -> Evictor:
        evictor = ListLru()
        setattr(evictor, event, _raises)
        return evictor

    return HostileCase(f"{event} raises", make)


def _raises(*_: object) -> Any:
    raise ValueError("no")
