"""From a stack and a configuration to what the KV cache is made of."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from jackfield.core.api import DEVICE, EvictionSpace, TierSpec
from jackfield.core.engine.guard import Guard
from jackfield.core.host.config import Config
from jackfield.core.host.evictions import build_evictors
from jackfield.core.host.stack import Stack
from jackfield.core.kv.build import CachePolicies, CacheSettings, GuardedEvictor
from jackfield.core.kv.contained import Hook

CACHE_HOOKS = ("identity", "salt", "retain", "move")


class Room(Protocol):
    """What there is to keep blocks in: what `Loaded` says of it, without an executor."""

    @property
    def num_blocks(self) -> int:
        """Of the pool."""

    @property
    def pool_bytes(self) -> int:
        """Of all blocks over all layers."""

    @property
    def encoding_id(self) -> bytes:
        """What tells stored keys and values from others."""

    @property
    def tiers(self) -> tuple[TierSpec, ...]:
        """Below the device, the fastest first."""


class CacheStack(NamedTuple):
    """guards: everybody's whose plugin is called while the engine runs."""

    policies: CachePolicies
    settings: CacheSettings
    guards: list[Guard]


def cache_stack(
    config: Config, stack: Stack, loaded: Room, model_id: str, alike_prompts: int | None = None
) -> CacheStack:
    """The plugins behind their guards, and the numbers of the section `cache`.

    model_id: what tells this model from others. alike_prompts: see `ModelSpec`.
    """
    guards: dict[str, Guard] = {}

    def guard(name: str) -> Guard:
        engine = config.engine
        return guards.setdefault(name, Guard(name, engine.fault_limit, engine.hook_budget))

    policies = _policies(config, stack, loaded, guard)
    settings = _settings(config, loaded, model_id)._replace(alike_prompts=alike_prompts)
    return CacheStack(policies, settings, list(guards.values()))


def _policies(
    config: Config, stack: Stack, loaded: Room, guard: Callable[[str], Guard]
) -> CachePolicies:
    hooks = {
        hook: [
            Hook(guard(found.plugin), found.call) for found in stack.manager.implementations(hook)
        ]
        for hook in CACHE_HOOKS
    }
    spaces = [EvictionSpace(DEVICE, loaded.num_blocks)]
    spaces += [EvictionSpace(spec.name, spec.num_slots) for spec in loaded.tiers]
    made = build_evictors(config.cache, stack.evictors, spaces)
    evictors: Mapping[str, GuardedEvictor] = {
        tier: GuardedEvictor(evictor, guard("+".join(config.cache.evictors(tier))))
        for tier, evictor in made.items()
    }
    return CachePolicies(
        evictors,
        next(iter(hooks["identity"]), None),
        hooks["salt"],
        hooks["retain"],
        hooks["move"],
        loaded.tiers,
    )


def _settings(config: Config, loaded: Room, model_id: str) -> CacheSettings:
    cache = config.cache
    return CacheSettings(
        block_bytes=loaded.pool_bytes // loaded.num_blocks,
        parts={"model": model_id.encode(), "encoding": loaded.encoding_id},
        isolates=cache.isolation == "tenant",
        shared_prefix_tokens=cache.shared_prefix_tokens,
        pinned_share=cache.pinned_share,
        loading_share=cache.loading_share,
        transfer_budget=cache.transfer_budget,
        transfer_timeout=cache.transfer_timeout,
    )
