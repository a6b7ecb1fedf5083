"""One level of the scheduling stack: a discipline behind its guard."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

from jackfield.core.api import (
    MAX_LOOKAHEAD,
    ClassState,
    Discipline,
    Rank,
    RequestView,
    Work,
)
from jackfield.core.engine.guard import Guard, OutOfContract, shown
from jackfield.core.engine.rank import LAST, Sortable, sortable
from jackfield.core.engine.request import Request

NEUTRAL: Sortable = (0.0,)
METHODS = (
    "classify", "key", "rank", "charge", "activate", "admitted", "left", "keep", "eligible_at",
    "pick",
)  # fmt: skip


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
            for name in METHODS
            if getattr(type(discipline), name) is not getattr(Discipline, name)
        }
        self.classifies = "classify" in overrides
        self.keys = "key" in overrides
        self.ranks = "rank" in overrides
        self.charges = "charge" in overrides
        self.adds_up = self.charges and discipline.adds_up is True
        self.activates = "activate" in overrides
        self._admits = "admitted" in overrides
        self._leaves = "left" in overrides
        self.seats = self._admits or self._leaves
        self.keeps = "keep" in overrides
        self.shapes = "eligible_at" in overrides
        self.lookahead = self._lookahead(discipline) if "pick" in overrides else 0
        self.displaces = self._may_displace(discipline)

    def _lookahead(self, discipline: Discipline[Any]) -> int:
        wanted: Any = discipline.lookahead
        if type(wanted) is not int or not 0 <= wanted <= MAX_LOOKAHEAD:
            self.guard.fault(f"lookahead is {shown(wanted)}, not a number from 0 to 64")
            return 0
        return wanted if wanted > 1 else 0

    @staticmethod
    def _may_displace(discipline: Discipline[Any]) -> bool:
        """Whether it has a margin, or a property that may become one."""
        of_class = getattr(type(discipline), "preempt_margin", None)
        own = getattr(discipline, "__dict__", {}).get("preempt_margin")
        return of_class is not None or own is not None

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

    def eligible_at(self, cls: ClassState[Any], now: float) -> float:
        """Engine time before which nobody of the class is admitted; 0 if the discipline fails."""
        return self.guard.ask(0.0, _time, self._discipline.eligible_at, cls, now)

    def pick(self, heads: Sequence[RequestView], now: float) -> int:
        """An index into `heads`; 0 if the discipline fails."""
        return self.guard.ask(0, partial(_index, len(heads)), self._discipline.pick, heads, now)

    def margin(self) -> float | None:
        """How much lower a rank must be to displace who runs; None = nothing displaces."""
        if not self.displaces:
            return None
        return self.guard.ask(None, _margin, self._preempt_margin)

    def _preempt_margin(self) -> float | None:
        return self._discipline.preempt_margin

    def charge(self, cls: ClassState[Any], work: Work) -> None:
        """Bill a class."""
        self.guard.call(None, self._discipline.charge, cls, work)

    def charge_all(self, bills: Sequence[tuple[ClassState[Any], Work]]) -> None:
        """Bill many classes, each once; a fault with one is no matter of the others."""
        self.guard.each(self._discipline.charge, bills)

    def ranks_of(self, classes: Sequence[ClassState[Any]], now: float) -> list[Sortable]:
        """Order among these classes. Many are asked in one go, and one by one after a fault."""
        found = self.guard.ask(None, _sortable_all, self._ranks, classes, now)
        if not found:
            return [self.rank(cls, now) for cls in classes]
        width = self._width.setdefault("rank", len(found[0]))
        if any(len(rank) != width for rank in found):
            return [self.rank(cls, now) for cls in classes]
        return found

    def _ranks(self, classes: Sequence[ClassState[Any]], now: float) -> list[Rank]:
        rank = self._discipline.rank
        return [rank(cls, now) for cls in classes]

    def admitted(self, cls: ClassState[Any], request: Request) -> None:
        """Tell the discipline that somebody of the class holds a seat."""
        if self._admits:
            self.guard.call(None, self._discipline.admitted, cls, request.view)

    def left(self, cls: ClassState[Any], request: Request) -> None:
        """Tell the discipline that somebody of the class holds its seat no longer."""
        if self._leaves:
            self.guard.call(None, self._discipline.left, cls, request.view)

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


def _sortable(answer: Rank) -> Sortable:
    rank = sortable(answer)
    if rank is None:
        raise OutOfContract(f"returned {shown(answer)}, which is no rank")
    return rank


def _sortable_all(answers: list[Rank]) -> list[Sortable]:
    return [_sortable(answer) for answer in answers]


def _hashable(key: Hashable) -> Hashable:
    try:
        stable = hash(key) == hash(key) and (key == key or key != key)
    except TypeError:
        stable = False
    if not stable:
        raise OutOfContract(f"returned {shown(key)}, which is not hashable")
    return key


def _time(answer: float) -> float:
    rank = sortable(answer)
    if rank is None or isinstance(answer, tuple):
        raise OutOfContract(f"returned {shown(answer)}, which is no time")
    try:
        return float(answer)
    except OverflowError:
        return math.inf if answer > 0 else -math.inf


def _index(count: int, answer: int) -> int:
    if type(answer) is not int or not 0 <= answer < count:
        raise OutOfContract(f"returned {shown(answer)}, not an index below {count}")
    return answer


def _margin(answer: float | None) -> float | None:
    if answer is None:
        return None
    rank = sortable(answer)
    if rank is None or isinstance(answer, tuple) or rank[0] < 0:
        raise OutOfContract(f"is {shown(answer)}, not None or a number that is not negative")
    return rank[0]
