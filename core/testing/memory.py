"""Caches for engines under test: plugins as they are, behind guards."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jackfield.core.api import DEVICE, EvictionSpace, Evictor, EvictorPlugin, Move, TierSpec
from jackfield.core.engine.guard import Guard
from jackfield.core.kv.build import (
    CachePolicies,
    CacheSettings,
    GuardedEvictor,
    Memory,
    build_cache,
)
from jackfield.core.kv.contained import Hook
from jackfield.core.kv.oldest_first import OldestFirst
from jackfield.core.kv.pool import BlockPool

FAULT_LIMIT = 3
BUDGET = 30.0


class EveryMove:
    """A move policy that copies down whatever it may."""

    def move(self, view: Any, byte_budget: int) -> list[Any]:
        """All candidates, in their order."""
        return [Move(one.block, int(one.leased)) for one in view.candidates]


class CacheKit(NamedTuple):
    """A cache stack for a test. plugins: whose methods are named like cache hooks. evictors: those
    of every tier, wrappers first; none = what became evictable first goes first. tiers: below the
    device.
    """

    plugins: Sequence[Any] = ()
    evictors: Sequence[EvictorPlugin] = ()
    tiers: Sequence[TierSpec] = ()

    def policies(self, num_blocks: int, guards: list[Guard] | None = None) -> CachePolicies:
        """As the engine takes them. guards: gets everybody's guard."""
        made: dict[str, Guard] = {}

        def guard(name: str) -> Guard:
            if name not in made:
                made[name] = Guard(name, FAULT_LIMIT, BUDGET)
                if guards is not None:
                    guards.append(made[name])
            return made[name]

        hooks = {name: self._hooks(name, guard) for name in ("identity", "salt", "retain", "move")}
        spaces = [EvictionSpace(DEVICE, num_blocks)]
        spaces += [EvictionSpace(tier.name, tier.num_slots) for tier in self.tiers]
        evictors = {
            space.tier: GuardedEvictor(self._evictor(space), guard("evictor")) for space in spaces
        }
        identity = hooks["identity"][0] if hooks["identity"] else None
        return CachePolicies(
            evictors, identity, hooks["salt"], hooks["retain"], hooks["move"], self.tiers
        )

    def _hooks(self, name: str, guard: Callable[[str], Guard]) -> list[Hook]:
        return [
            Hook(guard(type(plugin).__name__.lower()), getattr(plugin, name))
            for plugin in self.plugins
            if hasattr(plugin, name)
        ]

    def _evictor(self, space: EvictionSpace) -> Evictor:
        evictor: Evictor | None = None
        for plugin in reversed(self.evictors):
            evictor = plugin.evictor(space, evictor)
        return evictor or OldestFirst()


def make_memory(
    num_blocks: int,
    block_size: int,
    kit: CacheKit | None = None,
    settings: CacheSettings | None = None,
) -> Memory:
    """A cache on a pool of that size, without an engine."""
    pool = BlockPool(num_blocks, block_size)
    policies = (kit or CacheKit()).policies(num_blocks)
    return build_cache(pool, policies, settings or CacheSettings(), lambda count: None)
