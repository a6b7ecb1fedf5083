"""The folds over advisors: the most restrictive answer of all holds, and order never matters."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from jackfield.core.api import (
    Event,
    LoadView,
    PlanBuilder,
    Quota,
    QuotaView,
    RequestView,
    Shape,
    StepView,
    Verdict,
    VerdictKind,
    VictimView,
)
from jackfield.core.engine.guard import Guard, OutOfContract, shown

T = TypeVar("T")
LARGEST_WINS = frozenset({"reserve_blocks"})
NO_OPINION = Shape()
NO_VERDICTS: Sequence[Verdict] = ()
NO_HANDLES: Sequence[int] = ()
NO_LIMITS: Quota = MappingProxyType({})


class Advisor(NamedTuple):
    """One implementation of a hook, behind its plugin's guard."""

    plugin: str
    call: Callable[..., Any]
    guard: Guard


class Advice:
    """Asks the implementations of the scheduler hooks. An answer out of contract is ignored.

    hooks: hook name -> implementations, compiled when the engine was built.
    """

    def __init__(self, hooks: Mapping[str, Sequence[Advisor]]) -> None:
        self._admit = list(hooks.get("admit", ()))
        self._shape = list(hooks.get("shape", ()))
        self._quota = list(hooks.get("quota", ()))
        self._victims = list(hooks.get("victims", ()))
        self._observe = list(hooks.get("observe", ()))
        self._plan = list(hooks.get("plan", ()))

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
        asked = (*self._shape, *self._quota, *self._plan)
        return sorted({advisor.plugin for advisor in asked if not advisor.guard.off})

    @property
    def shaping(self) -> list[str]:
        """Plugins that limit steps."""
        return sorted({one.plugin for one in self._shape if not one.guard.off})

    @property
    def planner(self) -> str | None:
        """The plugin that plans whole steps; None = the core does."""
        if not self._plan or self._plan[0].guard.off:
            return None
        return self._plan[0].plugin

    def plan(self, step: StepView, builder: PlanBuilder) -> bool:
        """Let the owner plan the step; False if it failed."""
        advisor = self._plan[0]
        return _ask(advisor, False, _done, step, builder)

    def admit(
        self, views: Sequence[RequestView], load: LoadView
    ) -> list[tuple[Verdict, str]]:
        """For each request the strictest verdict, and whose it is."""
        views = tuple(views)
        found = [(Verdict.accept(), "")] * len(views)
        check = partial(_verdicts, len(views))
        for advisor in self._admit:
            for index, verdict in enumerate(_ask(advisor, NO_VERDICTS, check, views, load)):
                found[index] = max(found[index], (verdict, advisor.plugin), key=_strictness)
        return found

    def shape(self, step: StepView) -> Shape:
        """The tightest value of each field."""
        folded = NO_OPINION
        for advisor in self._shape:
            answer = _ask(advisor, NO_OPINION, _shape, step)
            folded = answer if folded is NO_OPINION else _tighten(folded, answer)
        return folded

    def quota(self, plan: QuotaView) -> dict[int, int]:
        """Handle -> the smallest limit anybody set."""
        folded: dict[int, int] = {}
        for advisor in self._quota:
            for handle, limit in _ask(advisor, NO_LIMITS, _limits, plan).items():
                folded[handle] = min(limit, folded.get(handle, limit))
        return folded

    def victims(self, shortage: VictimView) -> list[tuple[int, str]]:
        """The owner's choice, restricted to the candidates, each once; empty without an owner."""
        allowed = {view.handle for view in shortage.candidates}
        for advisor in self._victims[:1]:
            handles = dict.fromkeys(_ask(advisor, NO_HANDLES, _handles, shortage))
            return [(handle, advisor.plugin) for handle in handles if handle in allowed]
        return []

    def observe(self, events: Sequence[Event]) -> None:
        """Tell all observers what happened."""
        for advisor in self._observe:
            _ask(advisor, None, _nothing, events)


def _any_on(advisors: Sequence[Advisor]) -> bool:
    return any(not advisor.guard.off for advisor in advisors)


def _ask(advisor: Advisor, default: T, check: Callable[[Any], T], *arguments: Any) -> T:
    if advisor.guard.off:
        return default
    return advisor.guard.ask(default, check, advisor.call, *arguments)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _strictness(found: tuple[Verdict, str]) -> tuple[int, float, float, float, str, str]:
    verdict, plugin = found
    kind, code, until, retry_after, most = verdict
    shorter = 0 if most is None else -most
    return (int(kind), shorter, until, retry_after, plugin, code)


def _verdicts(count: int, answer: Any) -> Sequence[Verdict]:
    good = (
        isinstance(answer, Sequence)
        and len(answer) == count
        and all(isinstance(verdict, Verdict) and _is_sound(verdict) for verdict in answer)
    )
    if not good:
        raise OutOfContract(f"returned {shown(answer)}, not {count} verdicts with finite limits")
    return tuple(answer)


def _is_sound(verdict: Verdict) -> bool:
    times = (verdict.until, verdict.retry_after)
    finite = all(isinstance(value, int | float) and -1e18 < value < 1e18 for value in times)
    if verdict.kind is VerdictKind.DEGRADE:
        finite = finite and _is_count(verdict.max_tokens) and verdict.max_tokens != 0
    return finite and isinstance(verdict.kind, VerdictKind) and isinstance(verdict.code, str)


def _shape(answer: Any) -> Shape:
    if not isinstance(answer, Shape):
        raise OutOfContract(f"returned {shown(answer)}, not a Shape of counts")
    for value in answer:
        if value is not None and not _is_count(value):
            raise OutOfContract(f"returned {shown(answer)}, not a Shape of counts")
    return answer


def _limits(answer: Any) -> Quota:
    if not isinstance(answer, Mapping):
        raise OutOfContract(f"returned {shown(answer)}, not a mapping")
    limits = dict(answer)
    for handle, limit in limits.items():
        if not _is_count(limit):
            raise OutOfContract(f"for {shown(handle)} is {shown(limit)}, not a count")
    return limits


def _handles(answer: Any) -> Sequence[int]:
    if isinstance(answer, str) or not isinstance(answer, Sequence):
        raise OutOfContract(f"returned {shown(answer)}, not a list of handles")
    return [handle for handle in answer if _is_count(handle)]


def _nothing(answer: Any) -> None:
    return None


def _done(answer: Any) -> bool:
    return True


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
