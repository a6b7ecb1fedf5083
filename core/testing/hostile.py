"""Policies that misbehave: each hook times each misbehaviour that it can show.

    for case in catalogue():
        life(lambda context: [Good(Good.Config(), context), *case.make(context)])

What the core does about it is the same for all: the call is contained, a fault is counted under
the name of the plugin ("hostile"), after `engine.fault_limit` faults the default takes its place,
and no request that runs notices. Some misbehaviour is within the contract, only of no use; that is
no fault, and the engine's own guarantees keep it harmless.
"""

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    RequestView,
    Shape,
    Verdict,
    Work,
)

Behaviour = Callable[..., Any]
"""Takes the plugin and what the hook takes."""
NAME = "hostile"
SLOW_SECONDS = 0.05
DISCIPLINE_HOOKS = (
    "classify", "key", "rank", "charge", "activate", "admitted", "left", "keep", "eligible_at",
    "pick",
)  # fmt: skip
LEAF_HOOKS = frozenset({"key", "keep", "pick"})
ADVISOR_HOOKS = ("admit", "shape", "quota", "victims", "plan", "observe")
NEVER_ANSWERS = frozenset({"charge", "activate", "admitted", "left", "observe", "plan"})
RANKS = ("key", "rank", "keep")


class Case(NamedTuple):
    """One hook and one misbehaviour. is_fault: it is against the contract, and is counted."""

    hook: str
    what: str
    is_fault: bool
    behaviour: Callable[[], Behaviour]

    def __str__(self) -> str:
        return f"{self.hook}-{self.what.replace(' ', '-')}"

    def __repr__(self) -> str:
        return f"<hostile: {self.hook} {self.what}>"

    def make(self, context: PolicyContext) -> Any:
        """A new plugin that does this and is otherwise good."""
        if self.hook in ADVISOR_HOOKS:
            return _advisor(self.hook, self.behaviour())
        return _discipline(self.hook, self.behaviour())(PolicyConfig(), context)

    @property
    def is_leaf(self) -> bool:
        """Whether it is only asked at the end of a stack."""
        return self.hook in LEAF_HOOKS

    @property
    def is_advisor(self) -> bool:
        """Whether it limits, instead of ordering."""
        return self.hook in ADVISOR_HOOKS


class Nasty:
    """Cannot be printed, hashed or compared."""

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __hash__(self) -> int:
        raise ValueError("hash")

    def __eq__(self, other: object) -> bool:
        raise KeyError("eq")


def _discipline(hook: str, behaviour: Behaviour) -> type[Discipline[Any]]:
    class Hostile(Discipline[Any]):
        """A fair share of each tenant, but for one method."""

        lookahead = 3
        engine: Any = None

        def classify(self, request: RequestView) -> Hashable:
            return request.context.tenant

        def rank(self, cls: ClassState[Any], now: float) -> Any:
            return cls.state or 0

        def charge(self, cls: ClassState[Any], work: Work) -> None:
            cls.state = (cls.state or 0) + work.decode

    if hook in LEAF_HOOKS:
        del Hostile.classify
    setattr(Hostile, hook, lambda self, *arguments: behaviour(self, *arguments))
    return Hostile


def _advisor(hook: str, behaviour: Behaviour) -> Any:
    class Hostile:
        """Implements one hook."""

        engine: Any = None

    setattr(Hostile, hook, lambda self, *arguments: behaviour(self, *arguments))
    return Hostile()


def _raises(*_: Any) -> Any:
    raise ValueError("no")


def _deep(*arguments: Any) -> Any:
    return _deep(*arguments)


def _mutates(_: Any, first: Any, *__: Any) -> Any:
    for victim in first if isinstance(first, tuple) else [first]:
        for name in ("waiting", "arrival", "tokens", "need", "request", "load"):
            setattr(victim, name, 0)


def _reenters(plugin: Any, *_: Any) -> Any:
    assert plugin.engine is not None, "the test hands the engine over"
    plugin.engine.step()


def _returns(value: Any) -> Callable[[], Behaviour]:
    return lambda: lambda *_: value


def _asks(answer: Behaviour) -> Callable[[], Behaviour]:
    return lambda: answer


def _widths() -> Behaviour:
    count = iter(range(10**9))
    return lambda *_: (1.0,) * (1 + next(count) % 2)


def _good_answer(hook: str, arguments: tuple[Any, ...]) -> Any:
    if hook == "admit":
        return [Verdict.accept()] * len(arguments[0])
    answers: dict[str, Any] = {"shape": Shape(), "quota": {}, "victims": []}
    answers |= {"classify": None, "pick": 0}
    return answers.get(hook, 1.0)


def _slow(hook: str, burn: Callable[[float], None]) -> Callable[[], Behaviour]:
    def behaviour(_: Any, *arguments: Any) -> Any:
        burn(SLOW_SECONDS)
        return _good_answer(hook, arguments)

    return lambda: behaviour


def _stale_victims() -> Behaviour:
    seen: list[int] = []

    def victims(_: Any, shortage: Any) -> Any:
        seen.extend(view.handle for view in shortage.candidates)
        return seen[:50]

    return victims


def _stale_builder() -> Behaviour:
    """Keeps all builders and views, and uses them when their time is over."""
    kept: list[Any] = []

    def plan(_: Any, step: Any, planner: Any) -> None:
        for old in kept:
            assert not old.admit(0) and not old.decode(0) and not old.grant(0, 1)
        kept[:] = [planner]

    return plan


def _everything(_: Any, step: Any, planner: Any) -> None:
    for handle in (*(view.handle for view in planner.waiting), 10**9, -1):
        planner.admit(handle)
        planner.grant(handle, 10**12)
        planner.grant(handle, -1)
        planner.decode(handle)


def _never_the_same_class() -> Behaviour:
    count = iter(range(10**9))
    return lambda *_: next(count)


def _rekeys() -> Behaviour:
    """Has everybody asked again whom it ever saw, at every call."""
    seen: dict[int, RequestView] = {}

    def admitted(self: Any, cls: Any, request: RequestView) -> None:
        seen[request.handle] = request
        for view in seen.values():
            self.context.rekey(view)

    return admitted


def _rekeys_from_key() -> Behaviour:
    def key(self: Any, request: RequestView, now: float) -> float:
        self.context.rekey(request)
        return -request.arrival

    return key


BAD_RANKS: Mapping[str, Callable[[], Behaviour]] = {
    "returns text": _returns("first"),
    "returns NaN": _returns(math.nan),
    "returns NaN in a tuple": _returns((1.0, math.nan)),
    "returns nothing at all": _returns(()),
    "returns a list": _returns([1.0]),
    "returns a flag": _returns(True),
    "returns a complex number": _returns(1j),
    "returns what cannot be compared": _returns(Nasty()),
}
BAD: Mapping[str, Mapping[str, Callable[[], Behaviour]]] = {
    **{hook: {**BAD_RANKS, "returns tuples of changing length": _widths} for hook in RANKS},
    "eligible_at": BAD_RANKS,
    "classify": {
        "returns a list": _returns([1]),
        "returns what cannot be hashed": _returns(Nasty()),
    },
    "pick": {
        "returns NaN": _returns(math.nan),
        "returns an index before the first": _returns(-1),
        "returns an index behind the last": _returns(99),
        "returns a fraction": _returns(0.0),
    },
    "admit": {
        "returns too few": _returns([]),
        "returns too many": _returns([Verdict.accept()] * 99),
        "returns foreign objects": _asks(lambda _, requests, load: [Nasty() for _ in requests]),
        "defers until NaN": _asks(
            lambda _, requests, load: [Verdict.defer(math.nan) for _ in requests]
        ),
    },
    "shape": {
        "returns a dictionary": _returns({}),
        "returns negative limits": _returns(Shape(tokens=-1)),
        "returns NaN": _returns(Shape(tokens=math.nan)),  # type: ignore[arg-type]
    },
    "quota": {
        "returns a list": _returns([1]),
        "returns negative limits": _returns({0: -1}),
        "returns NaN": _returns({0: math.nan}),
    },
    "victims": {"returns a number": _returns(3), "returns a set": _returns({0})},
}
USELESS: Mapping[str, Mapping[str, Callable[[], Behaviour]]] = {
    **{hook: {"returns infinity": _returns(math.inf)} for hook in (*RANKS, "eligible_at")},
    "classify": {"never returns the same": _never_the_same_class},
    "admitted": {"re-keys everybody": _rekeys},
    "key": {"re-keys": _rekeys_from_key, "returns a huge number": _returns(10**400)},
    "admit": {
        "defers for ever": _asks(
            lambda _, requests, load: [Verdict.defer(1e17) for _ in requests]
        ),
        "defers into the past": _asks(
            lambda _, requests, load: [Verdict.defer(-1e17) for _ in requests]
        ),
    },
    "shape": {
        "allows nothing": _returns(Shape(0, 0, 0, 0, 0, 10**9)),
        "allows more than there is": _returns(Shape(*[10**12] * 5)),
    },
    "quota": {
        "allows nothing": _asks(
            lambda _, plan: {need.request.handle: 0 for need in plan.prefills}
        ),
        "allows more than there is": _asks(
            lambda _, plan: {need.request.handle: 10**400 for need in plan.prefills}
        ),
        "names foreign handles": _returns({10**9: 0, -5: 3, "x": 1, None: 2}),
    },
    "victims": {
        "names nobody": _returns([]),
        "names foreign handles": _returns([10**9, -1, 10**400]),
        "names stale handles": _stale_victims,
        "names one again and again": _asks(
            lambda _, shortage: [shortage.candidates[0].handle] * 50
        ),
    },
    "plan": {
        "plans nothing": _returns(None),
        "grants what nobody has": _asks(_everything),
        "uses what is over": _stale_builder,
    },
}


def catalogue(burn: Callable[[float], None] = time.sleep) -> list[Case]:
    """All cases. burn: how the slow ones spend `SLOW_SECONDS`."""
    return [case for hook in (*DISCIPLINE_HOOKS, *ADVISOR_HOOKS) for case in _cases(hook, burn)]


def _cases(hook: str, burn: Callable[[float], None]) -> Iterator[Case]:
    yield Case(hook, "raises", True, _asks(_raises))
    yield Case(hook, "never returns from recursion", True, _asks(_deep))
    yield Case(hook, "mutates what it sees", True, _asks(_mutates))
    yield Case(hook, "re-enters the core", True, _asks(_reenters))
    yield Case(hook, "is over its budget", True, _slow(hook, burn))
    if hook not in NEVER_ANSWERS and hook != "classify":
        yield Case(hook, "returns None", True, _returns(None))
    for what, behaviour in BAD.get(hook, {}).items():
        yield Case(hook, what, True, behaviour)
    for what, behaviour in USELESS.get(hook, {}).items():
        yield Case(hook, what, False, behaviour)
