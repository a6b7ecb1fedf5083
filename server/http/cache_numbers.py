"""What the KV cache counts, under Jackfield's names."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from jackfield.server.http.families import Families, Values, by

if TYPE_CHECKING:
    from jackfield.core.kv.cache_snapshot import CacheSnapshot

TOTALS = (
    ("published", "cached_blocks_published", "Blocks whose content others may use from then on."),
    ("evicted", "cached_blocks_evicted", "Contents that were lost for want of room."),
    ("dropped", "cached_blocks_dropped", "Contents that expired, were reset, or were not valid."),
    ("copied", "blocks_copied", "Blocks that were copied, so that they can be written."),
    ("refused_pins", "pins_refused", "Blocks that were not pinned: too many were already."),
    ("not_loaded", "loads_declined", "Times when computing was faster than loading from a tier."),
)
"""Field of the snapshot, name, meaning."""
TIER_GAUGES = (
    ("capacity", "tier_blocks", "Blocks that the tier has room for."),
    ("used", "tier_used_blocks", "Of these, those that are taken."),
    ("is_off", "tier_off", "1 if the tier is not used any more, since it fails."),
)
TIER_TOTALS = (
    ("stored", "tier_stored_blocks", "Blocks that were copied to the tier."),
    ("loaded", "tier_loaded_blocks", "Blocks that were copied from it to the device."),
    ("failed", "tier_failed_transfers", "Copies that failed, to the tier or from it."),
    ("late", "tier_late_transfers", "Of these, copies that took too long."),
)


def cache_numbers(make: Families, now: "CacheSnapshot") -> Iterator[Metric]:
    """All families; those of tiers are empty if there is none."""
    states = {"live": now.live, "cached": now.cached, "free": now.free, "moving": now.moving}
    yield make.gauges("kv_blocks_by_state", "What the pool holds.", ("state",), by(states))
    yield make.gauge("cached_contents", "Blocks that can be found, here or there.", now.contents)
    yield make.gauge("pinned_blocks", "Of these, blocks that are pinned.", now.pinned)
    queried = {"first": now.queried_tokens, "again": now.resumed_queried_tokens}
    hits = {"first": now.hit_tokens, "again": now.resumed_hit_tokens}
    seat = ("seat",)
    meaning = "Tokens of requests when they got a seat"
    yield make.counters("prefix_cache_queried_tokens", f"{meaning}.", seat, by(queried))
    yield make.counters("prefix_cache_hit_tokens", f"{meaning}, and were there.", seat, by(hits))
    for field, name, meaning in TOTALS:
        yield make.counter(name, meaning, getattr(now, field))
    for field, name, meaning in TIER_GAUGES:
        yield make.gauges(name, meaning, ("tier",), _by_tier(now, field))
    for field, name, meaning in TIER_TOTALS:
        yield make.counters(name, meaning, ("tier",), _by_tier(now, field))


def _by_tier(now: "CacheSnapshot", field: str) -> Values:
    return by({name: getattr(tier, field) for name, tier in now.tiers.items()})
