"""Other policies for the stack of one that is tested: installed, synthetic and hostile ones."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from jackfield.core.api import (
    ClassState,
    Discipline,
    PluginError,
    PolicyConfig,
    PolicyContext,
    RequestView,
    Shape,
    Verdict,
    Work,
)
from jackfield.core.host.discover import discover
from jackfield.core.host.loader import load_found
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import HOOKS, Sizes, context_for
from jackfield.core.testing.hostile import catalogue
from jackfield.core.testing.stacks import Factory, Stack, build

EXCLUSIVE = ("victims", "plan")
"""Hooks that one plugin of a stack may have."""
NOT_IN_RANDOM_STACKS = ("is over its budget", "re-enters the core", "defers into the past")
"""Misbehaviour that needs a clock or an engine of its own."""
MADE = context_for(Sizes(), ManualClock())
"""To look at plugins before there is an engine."""


class Neighbour(NamedTuple):
    """A plugin that may stand beside the tested one."""

    name: str
    make: Callable[[PolicyContext], Any]
    is_hostile: bool = False

    def __repr__(self) -> str:
        return self.name


class Scattered(Discipline[float]):
    """Puts requests into classes for no reason, and orders these for none."""

    def classify(self, request: RequestView) -> Hashable:
        return request.handle * 7919 % 3

    def rank(self, cls: ClassState[float], now: float) -> float:
        return float(cls.waiting * 31 % 7)


class Metered(Discipline[float]):
    """Tenants pay with time for what they were given."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant

    def charge(self, cls: ClassState[float], work: Work) -> None:
        paid = max(cls.state or 0.0, self.context.now())
        cls.state = paid + 0.05 * (work.prefill + work.decode)

    def eligible_at(self, cls: ClassState[float], now: float) -> float:
        return cls.state or 0.0


class Newest(Discipline[None]):
    """A leaf that turns the order round."""

    def key(self, request: RequestView, now: float) -> float:
        return -request.arrival


class Chooses(Discipline[None]):
    """A leaf that picks anybody, and has keys asked again."""

    lookahead = 4

    def pick(self, heads: Sequence[RequestView], now: float) -> int:
        self.context.rekey(heads[-1])
        return heads[-1].handle * 7919 % len(heads)


class Takes(Discipline[None]):
    """Better priorities take the seats of worse ones."""

    preempt_margin = 0.0

    def classify(self, request: RequestView) -> Hashable:
        return request.context.priority

    def rank(self, cls: ClassState[None], now: float) -> float:
        return float(cls.key) if isinstance(cls.key, int) else math.inf


class Tight:
    """Shapes and quotas of all sizes."""

    def __init__(self, context: PolicyContext) -> None:
        self._random = Random(5)

    def shape(self, step: Any) -> Shape:
        small = (None, None, None, 0, 1, 2, 10**6)
        return Shape(*(self._random.choice(small) for _ in Shape._fields))

    def quota(self, plan: Any) -> dict[int, int]:
        return {need.request.handle: self._random.randrange(6) for need in plan.prefills}


class Doorman:
    """Lets in, shortens, defers and refuses."""

    def __init__(self, context: PolicyContext) -> None:
        self._random = Random(7)

    def admit(self, requests: Any, load: Any) -> list[Verdict]:
        verdicts = (
            Verdict.accept(), Verdict.degrade(2), Verdict.defer(load.now + 3.0),
            Verdict.reject("no", 1.0),
        )  # fmt: skip
        return [self._random.choice(verdicts) for _ in requests]


def _of(cls: type[Discipline[Any]]) -> Neighbour:
    return Neighbour(cls.__name__, lambda context: cls(PolicyConfig(), context))


SYNTHETIC = (
    _of(Scattered), _of(Metered), _of(Newest), _of(Chooses), _of(Takes),
    Neighbour("Tight", Tight),
    Neighbour("Doorman", Doorman),
)  # fmt: skip
HOSTILE = tuple(
    Neighbour(f"hostile[{case}]", case.make, is_hostile=True)
    for case in catalogue()
    if case.what not in NOT_IN_RANDOM_STACKS
)


@cache
def installed() -> tuple[Neighbour, ...]:
    """Every scheduler plugin of this environment that works with its default configuration."""
    found = []
    for entry in discover("schedulers").usable:
        try:
            cls: Any = load_found(entry).cls
            config = getattr(cls, "Config", PolicyConfig)()
            cls(config, MADE)
        except (PluginError, ValueError):
            continue
        found.append(Neighbour(entry.name, partial(cls, config)))
    return tuple(found)


class Around(NamedTuple):
    """The neighbours of a tested policy: levels above and below it, and advisors."""

    above: Sequence[Neighbour] = ()
    below: Sequence[Neighbour] = ()
    advisors: Sequence[Neighbour] = ()

    def around(self, policy: Factory) -> Factory:
        """A factory of the whole stack. The tested policy comes with what it brings along."""

        def make(context: PolicyContext) -> list[Any]:
            own = list(policy(context))
            above = [one.make(context) for one in self.above]
            return [*above, *own, *(one.make(context) for one in self.below)]

        return make

    def beside(self, context: PolicyContext) -> Mapping[str, Any]:
        """The advisors by name."""
        made = {one.name: one.make(context) for one in self.advisors}
        return {type(plugin).__name__.lower(): plugin for plugin in made.values()}


def neighbourhoods(policy: Factory, *, hostile: bool = True) -> Any:
    """A strategy for what may surround the policy. The simplest is nothing."""
    own = build(policy, MADE)
    taken = {type(one).__name__ for one in (*own.disciplines, *own.advisors.values())}
    groups = (SYNTHETIC, installed(), HOSTILE if hostile else ())
    pools = [[one for one in group if _kind(one)[0] not in taken] for group in groups]
    last = own.disciplines[-1] if own.disciplines else None
    is_open = last is None or type(last).classify is not Discipline.classify
    return st.builds(
        Around,
        above=st.lists(_some(pools, "level"), max_size=2, unique_by=_class_name),
        below=st.lists(_some(pools, "leaf"), max_size=1) if is_open else st.just([]),
        advisors=st.lists(
            _some(pools, "advisor").filter(lambda one: not _claims(one, own)),
            max_size=2,
            unique_by=(_class_name, _exclusive),
        ),
    )


def _some(pools: Sequence[Sequence[Neighbour]], kind: str) -> Any:
    """A strategy for one neighbour of the kind, from any of the pools alike."""
    fitting = [[one for one in pool if _kind(one)[1] == kind] for pool in pools]
    return st.one_of(*(st.sampled_from(pool) for pool in fitting if pool))


def _class_name(one: Neighbour) -> str:
    return _kind(one)[0]


def _exclusive(one: Neighbour) -> str:
    """Equal for all that may not meet."""
    made = one.make(MADE)
    return "owner" if any(hasattr(made, hook) for hook in EXCLUSIVE) else one.name


def _claims(one: Neighbour, own: Stack) -> bool:
    """Whether it wants a hook that the tested policy owns."""
    made, owned = one.make(MADE), own.advisors.values()
    return any(hasattr(made, hook) and any(hasattr(o, hook) for o in owned) for hook in EXCLUSIVE)


def _kind(one: Neighbour) -> tuple[str, str]:
    """The name of its class, and what it is."""
    made = one.make(MADE)
    name = type(made).__name__
    if not isinstance(made, Discipline):
        return name, "advisor"
    if any(hasattr(made, hook) for hook in HOOKS):
        return name, "both"
    return name, "leaf" if type(made).classify is Discipline.classify else "level"
