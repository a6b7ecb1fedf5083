"""A cache of its parts: plugins behind their guards, and numbers."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jackfield.core.api import DEVICE, Evictor, TierSpec
from jackfield.core.kv.block_cache import BlockCache, CacheParts
from jackfield.core.kv.cache_metrics import CacheMetrics
from jackfield.core.kv.contained import Containment, Hook
from jackfield.core.kv.finder import Finder
from jackfield.core.kv.move_policy import MovePolicy
from jackfield.core.kv.mover import Mover, MoverSettings
from jackfield.core.kv.namespaces import Namespaces
from jackfield.core.kv.pool import BlockPool
from jackfield.core.kv.residency import Residency
from jackfield.core.kv.retention import Retention
from jackfield.core.kv.tier import EvictionOrder, Tier


class GuardedEvictor(NamedTuple):
    """The evictor of one tier."""

    evictor: Evictor
    guard: Containment


class CachePolicies(NamedTuple):
    """What the plugins of a stack decide. evictors: tier -> its evictor, for "device" and all
    tiers. tiers: the fastest first."""

    evictors: Mapping[str, GuardedEvictor]
    identity: Hook | None = None
    salts: Sequence[Hook] = ()
    retains: Sequence[Hook] = ()
    moves: Sequence[Hook] = ()
    tiers: Sequence[TierSpec] = ()


class CacheSettings(NamedTuple):
    """Numbers that fix a cache; see the section `cache`. parts, alike_prompts: see `Namespaces`.
    block_bytes: of one block over all layers."""

    block_bytes: int = 1
    parts: Mapping[str, bytes] = {}
    isolates: bool = True
    shared_prefix_tokens: int = 0
    pinned_share: float = 0.5
    loading_share: float = 0.25
    transfer_budget: int = 64 * 2**20
    transfer_timeout: float = 10.0
    alike_prompts: int | None = None


class Memory(NamedTuple):
    """The cache, and who moves its blocks between tiers."""

    cache: BlockCache
    mover: Mover


def build_cache(
    pool: BlockPool,
    policies: CachePolicies,
    settings: CacheSettings,
    recompute_seconds: Callable[[int], float | None],
) -> Memory:
    """A new, empty cache on that pool. recompute_seconds: see `Mover`."""
    identity, metrics = policies.identity, CacheMetrics()
    finder = Finder(
        identity and (lambda: identity.call(pool.block_size)),
        identity and identity.guard,
        pool.block_size,
    )
    tiers = {spec.name: Tier(spec, _order(policies, spec.name)) for spec in policies.tiers}
    residency = Residency(pool, finder, _order(policies, DEVICE), tiers, metrics)
    namespaces = Namespaces(
        settings.parts,
        pool.block_size,
        policies.salts,
        isolates=settings.isolates,
        shared_tokens=settings.shared_prefix_tokens,
        alike_prompts=settings.alike_prompts,
    )
    most_pinned = int(settings.pinned_share * pool.num_blocks)
    retention = Retention(policies.retains)
    cache = BlockCache(CacheParts(finder, residency, namespaces, retention, most_pinned))
    mover_settings = MoverSettings(
        settings.block_bytes,
        settings.transfer_budget,
        max(int(settings.loading_share * pool.num_blocks), 1),
        settings.transfer_timeout,
    )
    policy = MovePolicy(policies.moves)
    return Memory(cache, Mover(cache, mover_settings, policy, recompute_seconds))


def _order(policies: CachePolicies, tier: str) -> EvictionOrder:
    return EvictionOrder(*policies.evictors[tier])
