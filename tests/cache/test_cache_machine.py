"""Random lives of engines with the caches that come along, in stacks in which every pair meets."""

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest

from jackfield.core.api import EvictorPlugin, TierSpec
from jackfield.core.kv.build import CacheSettings
from jackfield.core.testing.cache_lives import CROWDED, TierMood, cached_life
from jackfield.core.testing.cache_machine import MakeKit, cache_machine
from jackfield.core.testing.fake_pace import AnyOrder
from jackfield.core.testing.memory import CacheKit, EveryMove
from jackfield.core.testing.scheduler_machine import run_machine
from jackfield.plugins.cache.arc import Arc
from jackfield.plugins.cache.lfu import Lfu
from jackfield.plugins.cache.lru import Lru
from jackfield.plugins.cache.pin import Pin
from jackfield.plugins.cache.prefix import Prefix
from jackfield.plugins.cache.radix import Radix
from jackfield.plugins.cache.slru import Slru
from jackfield.plugins.cache.swap import Swap
from jackfield.plugins.cache.ttl import Ttl

HOST, DISK = TierSpec("host", 6), TierSpec("disk", 9)
IDENTITIES: dict[str, type | None] = {"alone": None, "prefix": Prefix, "radix": Radix}
BASES = {"lru": Lru, "lfu": Lfu, "arc": Arc, "slru": Slru}
WRAPPERS: dict[str, Sequence[type[EvictorPlugin]]] = {
    "plain": (), "pin": (Pin,), "ttl": (Ttl,), "pin+ttl": (Pin, Ttl), "ttl+pin": (Ttl, Pin),
}  # fmt: skip
TIERS = {
    "device": (None, ()), "host": (Swap, (HOST,)), "disk": (Swap, (HOST, DISK)),
    "eager": (EveryMove, (HOST, DISK)),
}  # fmt: skip
FACTORS = (tuple(IDENTITIES), tuple(BASES), tuple(WRAPPERS), tuple(TIERS))
Row = tuple[str, ...]


def pairwise(factors: Sequence[Sequence[str]]) -> list[Row]:
    """Few rows in which each two values of different factors meet."""
    random, missing = Random(0), set[tuple[int, str, int, str]]()
    for one, other in combinations(range(len(factors)), 2):
        missing |= {(one, a, other, b) for a in factors[one] for b in factors[other]}
    rows: list[Row] = []
    while missing:
        drawn = [tuple(random.choice(factor) for factor in factors) for _ in range(100)]
        best = max(drawn, key=lambda row: len(met(row) & missing))
        missing -= met(best)
        rows.append(best)
    return rows


def met(row: Row) -> set[tuple[int, str, int, str]]:
    return {(one, row[one], other, row[other]) for one, other in combinations(range(len(row)), 2)}


def kit_of(row: Row) -> MakeKit:
    identity, base, wrappers, tiers = row
    moves, specs = TIERS[tiers]

    def make() -> CacheKit:
        plugins = [IDENTITIES[identity], moves]
        evictors = [*WRAPPERS[wrappers], BASES[base]]
        return CacheKit(
            [new(plugin) for plugin in plugins if plugin is not None],
            [new(plugin) for plugin in evictors],
            specs,
        )

    return make


def new(plugin: type) -> object:
    made: object = plugin(plugin.Config()) if hasattr(plugin, "Config") else plugin()
    return made


ROWS = [row for row in pairwise(FACTORS) if row[0] != "alone" or row[3] != "device"]


@pytest.mark.parametrize("row", ROWS, ids="-".join)
def test_a_random_life(row: Row) -> None:
    run_machine(cache_machine([kit_of(row)]), examples=8, steps=40)


def test_every_two_meet_but_what_cannot_be() -> None:
    pairs = set.union(*map(met, ROWS))
    wanted = sum(len(a) * len(b) for a, b in combinations(FACTORS, 2))
    assert len(pairs) >= wanted - 1 - len(BASES) - len(WRAPPERS)
    assert len(ROWS) < 40


@pytest.mark.parametrize("row", [row for row in ROWS if row[0] != "alone"], ids="-".join)
def test_caches_are_used_and_crowded(row: Row) -> None:
    """Else none of this would be tried."""
    mood = TierMood(lambda random: AnyOrder(random, 0.5), 0.05)
    watch = cached_life(kit_of(row)(), CROWDED, settings=CacheSettings(), mood=mood, steps=150)
    metrics = watch.engine.lifecycle.planner.cache.metrics
    assert metrics.hit_tokens > 50 and metrics.copied > 0
    assert metrics.evicted + sum(metrics.stored.values()) > 20
    assert watch.engine.metrics.preemptions > 5
    for tier in TIERS[row[3]][1]:
        assert metrics.stored[tier.name] > 0
