"""What the cache counts."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class CacheMetrics:
    """Counters since the start.

    queried_tokens, hit_tokens: of requests that got their first seat: tokens that could have been
    found, and those that were. resumed_*: the same of preempted requests that got a seat again.
    published, evicted: blocks that became known, and that were lost for want of room. dropped:
    lost for any other reason: expired, invalid, reset. stored, loaded: tier -> blocks copied to it,
    and from it to the device. failed_transfers, late_transfers: tier -> how many. not_loaded: times
    that recomputing was predicted to be faster. refused_pins: over the share that may be pinned.
    copied: blocks copied so that they can be written.
    """

    queried_tokens: int = 0
    hit_tokens: int = 0
    resumed_queried_tokens: int = 0
    resumed_hit_tokens: int = 0
    published: int = 0
    evicted: int = 0
    dropped: int = 0
    not_loaded: int = 0
    refused_pins: int = 0
    copied: int = 0
    stored: Counter[str] = field(default_factory=Counter)
    loaded: Counter[str] = field(default_factory=Counter)
    failed_transfers: Counter[str] = field(default_factory=Counter)
    late_transfers: Counter[str] = field(default_factory=Counter)
