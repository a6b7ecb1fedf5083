"""What there is of the cache at one moment, and what it has counted, as metrics show it."""

from typing import NamedTuple

from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.tier import Tier


class TierSnapshot(NamedTuple):
    """A tier below the device; all but `is_off` in blocks, or counted since the start.

    used: slots with content, or on their way to or from it. stored, loaded: copied to it, and from
    it to the device. late: of the failed transfers, those that took too long.
    """

    capacity: int
    used: int
    stored: int
    loaded: int
    failed: int
    late: int
    is_off: bool


class CacheSnapshot(NamedTuple):
    """live, cached, free, moving: the pool's blocks; together all of them.

    moving: held for nothing but a transfer, or a request that waits for one. contents: blocks
    whose content is known, wherever they are, live ones included; pinned are some of them. All
    others are counters: see `CacheMetrics`. tiers: the fastest first.
    """

    live: int
    cached: int
    free: int
    moving: int
    contents: int
    pinned: int
    queried_tokens: int
    hit_tokens: int
    resumed_queried_tokens: int
    resumed_hit_tokens: int
    published: int
    evicted: int
    dropped: int
    copied: int
    not_loaded: int
    refused_pins: int
    tiers: dict[str, TierSnapshot]


def take_cache_snapshot(cache: BlockCache) -> CacheSnapshot:
    """May be called from any thread; numbers of a step under way may be half of it."""
    pool, residency, metrics = cache.pool, cache.residency, cache.metrics
    live, cached, free = pool.num_live, pool.num_idle, pool.num_empty
    return CacheSnapshot(
        live=live,
        cached=cached,
        free=free,
        moving=max(pool.num_blocks - live - cached - free, 0),
        contents=len(cache.finder.entries),
        pinned=residency.num_pinned,
        queried_tokens=metrics.queried_tokens,
        hit_tokens=metrics.hit_tokens,
        resumed_queried_tokens=metrics.resumed_queried_tokens,
        resumed_hit_tokens=metrics.resumed_hit_tokens,
        published=metrics.published,
        evicted=metrics.evicted,
        dropped=metrics.dropped,
        copied=metrics.copied,
        not_loaded=metrics.not_loaded,
        refused_pins=metrics.refused_pins,
        tiers={name: _tier(tier, cache) for name, tier in residency.tiers.items()},
    )


def _tier(tier: Tier, cache: BlockCache) -> TierSnapshot:
    metrics, capacity = cache.metrics, tier.spec.num_slots
    return TierSnapshot(
        capacity=capacity,
        used=capacity - tier.num_free,
        stored=metrics.stored[tier.name],
        loaded=metrics.loaded[tier.name],
        failed=metrics.failed_transfers[tier.name],
        late=metrics.late_transfers[tier.name],
        is_off=tier.off is not None,
    )
