"""Cache plugins that misbehave: each hook times each misbehaviour that it can show.

    for case in cache_catalogue():
        hostile = case.make()
        cached_life(hostile.kit, ...)

What the core does about it is the same for all: the call is contained, a fault is counted under
the name of the plugin, after so many faults the default takes its place, and every answer is right.
Some misbehaviour is within the contract, only of no use; that is no fault.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jackfield.core.api import EvictionSpace, Evictor, EvictorPlugin, Keep, Move, Released
from jackfield.core.testing.eviction_hostile import FOREIGN, HostileEvictor, hostile_evictors
from jackfield.core.testing.eviction_models import ListLru
from jackfield.core.testing.hostile import SLOW_SECONDS, Nasty
from jackfield.core.testing.index_hostile import HOSTILE
from jackfield.core.testing.memory import CacheKit, EveryMove
from jackfield.core.testing.naive_index import NaiveIndex

NAME = "hostile"
EVICTOR = "evictor"
"""The name under which a kit's evictors are counted."""
Behaviour = Callable[..., Any]
"""Takes the hostile plugin and what the hook takes."""
HARMLESS_INDEXES = frozenset({"Writes"})
"""Indexes that keep to the contract as far as anybody can see."""
HARMLESS_EVICTORS = frozenset({"too many"})
HOOKS = ("salt", "retain", "move")
ALLOCATED = 2**20


class Hostile:
    """A plugin that misbehaves in one way. engine: for those that call it; the test hands it over.

    kit: with it, and with good plugins wherever the cache needs some.
    """

    def __init__(self) -> None:
        self.engine: Any = None
        self.kit = CacheKit()
        self.kept: list[bytes] = []


class CacheCase(NamedTuple):
    """One hook and one misbehaviour. is_fault: it is against the contract, and is counted."""

    hook: str
    what: str
    is_fault: bool
    make: Callable[[], Hostile]

    def __str__(self) -> str:
        return f"{self.hook}-{self.what.replace(' ', '-')}"

    @property
    def plugin(self) -> str:
        """The name under which its faults are counted."""
        return EVICTOR if self.hook == "evictor" else NAME


def cache_catalogue(burn: Callable[[float], None] = time.sleep) -> list[CacheCase]:
    """All cases. burn: how the slow ones spend `SLOW_SECONDS`."""
    hooks = [case for hook in HOOKS for case in _hook_cases(hook, burn)]
    return [*hooks, *_index_cases(burn), *_evictor_cases(burn)]


def _raises(*_: Any) -> Any:
    raise ValueError("no")


def _deep(*arguments: Any) -> Any:
    return _deep(*arguments)


def _calls(method: str, *arguments: Any) -> Behaviour:
    """Calls the engine that runs it, and says so by what that raises."""

    def behaviour(plugin: Hostile, *_: Any) -> Any:
        assert plugin.engine is not None, "the test hands the engine over"
        return getattr(plugin.engine, method)(*arguments)

    return behaviour


def _allocates(answer: Behaviour) -> Behaviour:
    def behaviour(plugin: Hostile, *arguments: Any) -> Any:
        plugin.kept[:] = [bytes(ALLOCATED)]
        return answer(plugin, *arguments)

    return behaviour


def _slow(answer: Behaviour, burn: Callable[[float], None]) -> Behaviour:
    def behaviour(*arguments: Any) -> Any:
        burn(SLOW_SECONDS)
        return answer(*arguments)

    return behaviour


def _returns(value: Any) -> Behaviour:
    return lambda *_: value


def _keeps(**fields: Any) -> Behaviour:
    return lambda _, released: [Keep(**fields) for _ in released]


def _blocks(view: Any) -> list[int]:
    return [one.block for one in view.candidates]


GOOD: Mapping[str, Behaviour] = {
    "salt": lambda _, request: request.context.tenant.encode(),
    "retain": lambda _, released: [Keep() for _ in released],
    "move": lambda _, view, budget: [Move(block) for block in _blocks(view)],
}
WRONG: Mapping[str, Mapping[str, Behaviour]] = {
    "salt": {
        "returns None": _returns(None), "returns text": _returns("a"), "returns 1": _returns(1),
        "returns NaN": _returns(math.nan), "returns a bytearray": _returns(bytearray(b"a")),
        "returns what cannot be compared": lambda *_: Nasty(),
    },
    "retain": {
        "returns None": _returns(None), "returns too few": _returns([]),
        "returns too many": _returns([Keep()] * 99), "returns text": _returns(["keep"]),
        "returns what cannot be compared": lambda *_: [Nasty()],
        "keeps for NaN seconds": _keeps(ttl=math.nan), "keeps for ever": _keeps(ttl=math.inf),
        "keeps until before": _keeps(ttl=-1.0), "keeps for text": _keeps(ttl="1"),
        "has the priority NaN": _keeps(priority=math.nan), "has no priority": _keeps(priority=None),
    },
    "move": {
        "returns None": _returns(None), "returns 1": _returns(1), "returns blocks": (
            lambda _, view, budget: _blocks(view) or [1]
        ),
        "has the priority NaN": _returns([Move(1, math.nan)]),  # type: ignore[arg-type]
        "returns what cannot be compared": lambda *_: [Nasty()],
        "breaks off": lambda _, view, budget: _breaks_off(view),
    },
}  # fmt: skip
USELESS: Mapping[str, Mapping[str, Behaviour]] = {
    "salt": {
        "is always the same": _returns(b"same"), "is huge": _returns(bytes(10**5)),
        "is another each time": lambda plugin, request: str(request.handle).encode(),
        "is the tag of another part": _returns(b"tenant"),
    },
    "retain": {
        "pins everything": _keeps(pin=True), "drops everything": _keeps(drop=True),
        "pins and drops": _keeps(pin=True, drop=True), "has huge priorities": (
            lambda _, released: [Keep(priority=(-10) ** (400 + one.num_blocks)) for one in released]
        ),
        "keeps for a moment": _keeps(ttl=0.0), "keeps for an age": _keeps(ttl=1e308),
    },
    "move": {
        "moves nothing": _returns([]),
        "names foreign blocks": _returns([Move(FOREIGN), Move(-1), Move(10**400)]),
        "names one again and again": lambda _, view, budget: [Move(_blocks(view)[0])] * 50,
        "names old blocks": (
            lambda plugin, view, budget: [Move(block) for block in range(200)]
        ),
        "has huge priorities": (
            lambda _, view, budget: [Move(block, 10**400) for block in _blocks(view)]
        ),
    },
}  # fmt: skip
ENGINE_CALLS: Mapping[str, tuple[Any, ...]] = {
    "step": (), "reset_prefix_cache": (), "abort": ("r0",),
}  # fmt: skip


def _breaks_off(view: Any) -> Iterator[Move]:
    yield Move(_blocks(view)[0])
    raise ValueError("no")


def _hook_cases(hook: str, burn: Callable[[float], None]) -> Iterator[CacheCase]:
    good = GOOD[hook]
    yield _hook(hook, "raises", True, _raises)
    yield _hook(hook, "never returns from recursion", True, _deep)
    yield _hook(hook, "is over its budget", True, _slow(good, burn))
    yield _hook(hook, "allocates", False, _allocates(good))
    for method, arguments in ENGINE_CALLS.items():
        yield _hook(hook, f"calls {method}", True, _calls(method, *arguments))
    for what, behaviour in WRONG[hook].items():
        yield _hook(hook, what, True, behaviour)
    for what, behaviour in USELESS[hook].items():
        yield _hook(hook, what, False, behaviour)


def _hook(hook: str, what: str, is_fault: bool, behaviour: Behaviour) -> CacheCase:
    def make() -> Hostile:
        hostile = _with({hook: behaviour})
        beside = [Finds()] if hook == "move" else [Finds(), EveryMove()]
        hostile.kit = CacheKit([hostile, *beside])
        return hostile

    return CacheCase(hook, what, is_fault, make)


def _with(methods: Mapping[str, Behaviour]) -> Hostile:
    """A new class each time, since hooks are looked up by name; all are called alike."""
    made: dict[str, Any] = {
        name: lambda self, *arguments, behaviour=behaviour: behaviour(self, *arguments)
        for name, behaviour in methods.items()
    }
    hostile: Hostile = type(NAME.title(), (Hostile,), made)()
    return hostile


class Finds:
    """An identity that is slow and right."""

    def identity(self, block_size: int) -> NaiveIndex:
        """Compares everything."""
        return NaiveIndex(block_size)


class Ranks:
    """Has an opinion of what is kept, so that evictors hear of changes."""

    def retain(self, released: Sequence[Released]) -> list[Keep]:
        """Later requests matter more."""
        return [Keep(priority=one.request.handle) for one in released]


def _index_cases(burn: Callable[[float], None]) -> Iterator[CacheCase]:
    for name, kind in HOSTILE.items():
        yield _index(name, name not in HARMLESS_INDEXES, lambda _, size, kind=kind: kind(size))
    for what, value in (("is None", None), ("is no index", 3)):
        yield _index(what, True, _returns(value))
    yield _index("identity raises", True, _raises)
    for method in ("match", "insert", "remove"):
        yield _index(f"{method} is over its budget", True, _spoilt(method, _slow(_inner, burn)))
        yield _index(f"{method} never returns", True, _spoilt(method, _deep))
        yield _index(f"{method} allocates", False, _spoilt(method, _allocates(_inner)))
        for call, arguments in ENGINE_CALLS.items():
            behaviour = _spoilt(method, _calls(call, *arguments))
            yield _index(f"{method} calls {call}", True, behaviour)


def _index(what: str, is_fault: bool, identity: Behaviour) -> CacheCase:
    def make() -> Hostile:
        hostile = _with({"identity": identity})
        hostile.kit = CacheKit([hostile, EveryMove()])
        return hostile

    return CacheCase("identity", what, is_fault, make)


def _inner(plugin: Hostile, method: Callable[..., Any], *arguments: Any) -> Any:
    return method(*arguments)


def _spoilt(method: str, behaviour: Behaviour) -> Behaviour:
    """An index whose one method does this with the right one."""

    def identity(plugin: Hostile, block_size: int) -> NaiveIndex:
        index = NaiveIndex(block_size)
        right = getattr(index, method)
        setattr(index, method, lambda *arguments: behaviour(plugin, right, *arguments))
        return index

    return identity


def _evictor_cases(burn: Callable[[float], None]) -> Iterator[CacheCase]:
    for case in hostile_evictors():
        is_fault = case.name not in HARMLESS_EVICTORS
        yield _evictor(case.name, is_fault, lambda _, space, case=case: case.make(space, None))
    for method in ("insert", "touch", "evictable", "victims"):
        yield _evictor(f"{method} is over its budget", True, _bad(method, _slow(_inner, burn)))
        yield _evictor(f"{method} allocates", False, _bad(method, _allocates(_inner)))
        for call, arguments in ENGINE_CALLS.items():
            behaviour = _bad(method, _calls(call, *arguments))
            yield _evictor(f"{method} calls {call}", True, behaviour)


def _evictor(what: str, is_fault: bool, make_evictor: Behaviour) -> CacheCase:
    def make() -> Hostile:
        hostile = _with({})

        class Plugin(EvictorPlugin):
            """Hands it out, for every tier."""

            def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
                made: Evictor = make_evictor(hostile, space)
                return made

        hostile.kit = CacheKit([Finds(), Ranks(), EveryMove()], [Plugin(Plugin.Config())])
        return hostile

    return CacheCase("evictor", what, is_fault, make)


def _bad(method: str, behaviour: Behaviour) -> Behaviour:
    def make(plugin: Hostile, space: EvictionSpace) -> Evictor:
        evictor = HostileEvictor(lambda self, count: self.good(count))
        right = getattr(ListLru, method).__get__(evictor)
        setattr(evictor, method, lambda *arguments: behaviour(plugin, right, *arguments))
        return evictor

    return make


def names(cases: Sequence[CacheCase]) -> list[str]:
    """Of all cases."""
    return [str(case) for case in cases]
