"""The folds over advisors: the most restrictive answer of all holds, and order never matters."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jackfield.core.api import (
    Event,
    LoadView,
    Quota,
    QuotaView,
    RequestView,
    Shape,
    StepView,
    Verdict,
    VictimView,
)
from jackfield.core.engine.guard import Guard

LARGEST_WINS = frozenset({"reserve_blocks"})
NO_OPINION = Shape()


class Advisor(NamedTuple):
    """One implementation of a hook, behind its plugin's guard."""

    plugin: str
    call: Callable[..., Any]
    guard: Guard


class Advice:
    """Asks the implementations of the scheduler hooks. An answer out of contract counts for nothing.

    hooks: hook name -> implementations, compiled when the engine was built.
    """

    def __init__(self, hooks: Mapping[str, Sequence[Advisor]]) -> None:
        self._admit = list(hooks.get("admit", ()))
        self._shape = list(hooks.get("shape", ()))
        self._quota = list(hooks.get("quota", ()))
        self._victims = list(hooks.get("victims", ()))
        self._observe = list(hooks.get("observe", ()))

    @property
    def wants_shape(self) -> bool:
        """Whether anybody limits steps."""
        return _any_on(self._shape)

    @property
    def wants_quota(self) -> bool:
        """Whether anybody limits prompts."""
        return _any_on(self._quota)

    @property
    def wants_events(self) -> bool:
        """Whether anybody observes."""
        return _any_on(self._observe)

    @property
    def limiting(self) -> list[str]:
        """Plugins that may have made a step empty."""
        return sorted({a.plugin for a in (*self._shape, *self._quota) if not a.guard.off})

    def admit(
        self, views: Sequence[RequestView], load: LoadView
    ) -> list[tuple[Verdict, str]]:
        """For each request the strictest verdict, and whose it is."""
        found = [(Verdict.accept(), "")] * len(views)
        for advisor in self._admit:
            verdicts = _ask(advisor, None, views, load)
            if verdicts is None or not _are_verdicts(verdicts, len(views), load.now, advisor.guard):
                continue
            for index, verdict in enumerate(verdicts):
                if _strictness(verdict) > _strictness(found[index][0]):
                    found[index] = (verdict, advisor.plugin)
        return found

    def shape(self, step: StepView) -> Shape:
        """The tightest value of each field."""
        folded = NO_OPINION
        for advisor in self._shape:
            answer = _ask(advisor, NO_OPINION, step)
            if _is_shape(answer, advisor.guard):
                folded = _tighten(folded, answer)
        return folded

    def quota(self, plan: QuotaView) -> dict[int, int]:
        """Handle -> the smallest limit anybody set."""
        folded: dict[int, int] = {}
        for advisor in self._quota:
            answer: Quota = _ask(advisor, {}, plan)
            if not isinstance(answer, Mapping):
                advisor.guard.fault(f"quota returned {answer!r}, not a mapping")
                continue
            for handle, limit in answer.items():
                if not _is_count(limit):
                    advisor.guard.fault(f"quota for {handle!r} is {limit!r}, not a count")
                    continue
                folded[handle] = min(limit, folded.get(handle, limit))
        return folded

    def victims(self, shortage: VictimView) -> list[tuple[int, str]]:
        """The owner's choice, restricted to the candidates, each once; empty without an owner."""
        for advisor in self._victims:
            answer = _ask(advisor, (), shortage)
            if isinstance(answer, str) or not isinstance(answer, Sequence):
                advisor.guard.fault(f"victims returned {answer!r}, not a list of handles")
                return []
            allowed = {view.handle for view in shortage.candidates}
            handles = dict.fromkeys(handle for handle in answer if _is_count(handle))
            chosen = [handle for handle in handles if handle in allowed]
            return [(handle, advisor.plugin) for handle in chosen]
        return []

    def observe(self, events: Sequence[Event]) -> None:
        """Tell all observers what happened."""
        for advisor in self._observe:
            _ask(advisor, None, events)


def _any_on(advisors: Sequence[Advisor]) -> bool:
    return any(not advisor.guard.off for advisor in advisors)


def _ask(advisor: Advisor, default: Any, *arguments: Any) -> Any:
    if advisor.guard.off:
        return default
    return advisor.guard.call(default, advisor.call, *arguments)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _strictness(verdict: Verdict) -> tuple[int, float, float]:
    return (int(verdict.kind), verdict.until, verdict.retry_after)


def _are_verdicts(answer: Any, count: int, now: float, guard: Guard) -> bool:
    good = (
        isinstance(answer, Sequence)
        and len(answer) == count
        and all(isinstance(verdict, Verdict) and _is_finite(verdict) for verdict in answer)
    )
    if not good:
        guard.fault(f"admit returned {answer!r}, not {count} verdicts with finite times")
    return good


def _is_finite(verdict: Verdict) -> bool:
    return all(
        isinstance(value, int | float) and -1e18 < value < 1e18
        for value in (verdict.until, verdict.retry_after)
    )


def _is_shape(answer: Any, guard: Guard) -> bool:
    good = isinstance(answer, Shape) and all(v is None or _is_count(v) for v in answer)
    if not good:
        guard.fault(f"shape returned {answer!r}, not a Shape of counts")
    return good


def _tighten(first: Shape, second: Shape) -> Shape:
    return Shape(
        *(
            _strictest(name, mine, theirs)
            for name, mine, theirs in zip(Shape._fields, first, second, strict=True)
        )
    )


def _strictest(name: str, mine: int | None, theirs: int | None) -> int | None:
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    return max(mine, theirs) if name in LARGEST_WINS else min(mine, theirs)
