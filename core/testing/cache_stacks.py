"""Stacks of cache plugins around one that is tested; what it lacks is slow and evidently right."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jackfield.core.api import CachePlugin, EvictionSpace, Evictor, EvictorPlugin, TierSpec
from jackfield.core.testing.cache_hostile import Finds
from jackfield.core.testing.cache_machine import MakeKit
from jackfield.core.testing.eviction_models import ListFifo, ListLru
from jackfield.core.testing.memory import CacheKit, EveryMove
from jackfield.core.testing.move_laws import names_of

MakeCache = Callable[[], CachePlugin]
"""A new instance of the tested plugin."""
ENGINE_HOOKS = ("identity", "salt", "retain", "move")
"""Hooks that are called while an engine runs, beside those of evictors."""
SLOTS = (6, 9)
TIERS = ("host", "disk")


class PlainLru(EvictorPlugin):
    """Gives up what was used least recently."""

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        """A list."""
        return ListLru()


class PlainFifo(EvictorPlugin):
    """Gives up what came first."""

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        """A list."""
        return ListFifo()


def around(make: MakeCache) -> list[MakeKit]:
    """Stacks that contain a new instance of the plugin: with and without an identity and tiers."""
    kits = [_kit(make, finds, depth) for depth in (0, 1, 2) for finds in (True, False)]
    if hasattr(make(), "identity"):
        kits = [_kit(make, False, depth) for depth in (0, 1, 2)]
    elif hasattr(make(), "move"):
        kits = [_kit(make, finds, depth) for depth in (1, 2) for finds in (True, False)]
    else:
        del kits[1]  # without an identity and tiers nothing is cached
    return kits


def without(make: MakeCache) -> MakeKit:
    """The stack that finds the same as the first one of `around`, without the plugin."""
    return lambda: CacheKit([Finds()], [PlainLru(PlainLru.Config())])


def _kit(make: MakeCache, finds: bool, depth: int) -> MakeKit:
    def kit() -> CacheKit:
        plugin = make()
        own = [plugin] if any(hasattr(plugin, hook) for hook in ENGINE_HOOKS) else []
        beside: list[Any] = [Finds()] if finds else []
        if depth and not hasattr(plugin, "move"):
            beside.append(EveryMove())
        return CacheKit([*own, *beside], _evictors(plugin), _tiers(plugin, depth))

    return kit


def _evictors(plugin: CachePlugin) -> Sequence[EvictorPlugin]:
    plain = PlainLru(PlainLru.Config())
    if not isinstance(plugin, EvictorPlugin):
        return [plain]
    return [plugin, plain] if plugin.wraps else [plugin]


def _tiers(plugin: Any, depth: int) -> list[TierSpec]:
    """So many small ones, under the names of those that the plugin brings."""
    own: Iterable[str] = names_of(plugin) if hasattr(plugin, "tiers") else ()
    names = [*own, *(name for name in TIERS if name not in own)][:depth]
    return [TierSpec(name, slots) for name, slots in zip(names, SLOTS, strict=False)]
