"""One level of the scheduling stack: a discipline behind its guard."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from jackfield.core.api import ClassState, Discipline, Rank, Work
from jackfield.core.engine.guard import Guard, OutOfContract, shown
from jackfield.core.engine.rank import LAST, Sortable, sortable
from jackfield.core.engine.request import Request

NEUTRAL: Sortable = (0.0,)


class Level:
    """Asks a discipline and checks its answers. What it does not override is not called."""

    def __init__(self, name: str, discipline: Discipline[Any], guard: Guard) -> None:
        self.name = name
        self.guard = guard
        self._neutral: Discipline[Any] = Discipline(discipline.config, discipline.context)
        self._bind(discipline)
        self._width: dict[str, int] = {}

    def _bind(self, discipline: Discipline[Any]) -> None:
        self._discipline = discipline
        overrides = {
            name
            for name in ("classify", "key", "rank", "charge", "activate", "keep")
            if getattr(type(discipline), name) is not getattr(Discipline, name)
        }
        self.classifies = "classify" in overrides
        self.keys = "key" in overrides
        self.ranks = "rank" in overrides
        self.charges = "charge" in overrides
        self.activates = "activate" in overrides
        self.keeps = "keep" in overrides

    def fall_back(self) -> None:
        """Replace the discipline by first come first served."""
        self._bind(self._neutral)
        self._width.clear()

    @property
    def failed(self) -> bool:
        """Whether the discipline has used up its faults and is still in place."""
        return self.guard.off and self._discipline is not self._neutral

    def classify(self, request: Request) -> Hashable:
        """The request's class; the common class if the discipline fails."""
        if not self.classifies:
            return None
        return self.guard.ask(None, _hashable, self._discipline.classify, request.view)

    def key(self, request: Request, now: float) -> Sortable:
        """Order inside a leaf."""
        if not self.keys:
            return (request.arrival,)
        return self._rank("key", self._discipline.key, request.view, now)

    def rank(self, cls: ClassState[Any], now: float) -> Sortable:
        """Order among classes."""
        if not self.ranks:
            return NEUTRAL
        return self._rank("rank", self._discipline.rank, cls, now)

    def keep(self, request: Request, now: float) -> Sortable:
        """Larger = preempted later."""
        if not self.keeps:
            return (-request.arrival,)
        return self._rank("keep", self._discipline.keep, request.view, now)

    def charge(self, cls: ClassState[Any], work: Work) -> None:
        """Bill a class."""
        self.guard.call(None, self._discipline.charge, cls, work)

    def activate(self, cls: ClassState[Any], siblings: Iterable[ClassState[Any]]) -> None:
        """Tell the discipline that a class comes back."""
        states = [sibling.state for sibling in siblings if sibling.state is not None]
        self.guard.call(None, self._activate, cls, states)

    def _activate(self, cls: ClassState[Any], states: list[Any]) -> None:
        self._discipline.activate(cls, min(states) if states else None)

    def _rank(self, name: str, method: Callable[..., Rank], *arguments: Any) -> Sortable:
        rank = self.guard.ask(None, _sortable, method, *arguments)
        if rank is None:
            return LAST * self._width.get(name, 1)
        if self._width.setdefault(name, len(rank)) != len(rank):
            self.guard.fault(f"{name} returned {len(rank)} numbers, before {self._width[name]}")
            return LAST * self._width[name]
        return rank


def _sortable(answer: Rank) -> Sortable | None:
    rank = sortable(answer)
    if rank is None:
        raise OutOfContract(f"returned {shown(answer)}, which is no rank")
    return rank


def _hashable(key: Hashable) -> Hashable:
    try:
        stable = hash(key) == hash(key) and (key == key or key != key)
    except TypeError:
        stable = False
    if not stable:
        raise OutOfContract(f"returned {shown(key)}, which is not hashable")
    return key
