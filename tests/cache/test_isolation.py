"""Whose blocks a request finds: its own tenant's, and of others only what is no secret."""

from typing import Any

import pytest

from jackfield.core.api import CacheHints, RequestContext, TierSpec
from jackfield.core.kv.build import CacheSettings
from jackfield.core.testing.cache_hostile import Finds
from jackfield.core.testing.cache_inspectors import inspect, may_see, zone_of
from jackfield.core.testing.cache_lives import TierMood, cached_life
from jackfield.core.testing.cache_machine import watched
from jackfield.core.testing.cache_watch import CacheWatch
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, request
from jackfield.core.testing.fake_pace import AnyOrder
from jackfield.core.testing.index_hostile import AnySpace
from jackfield.core.testing.memory import CacheKit, EveryMove
from jackfield.plugins.cache.prefix import Prefix
from jackfield.plugins.cache.radix import Radix

SIZE = 4
SIZES = Sizes(num_blocks=64, block_size=SIZE, max_tokens=64, max_seqs=8)
PROMPT = list(range(40))
ALL = len(PROMPT) - 1
"""What is found of a prompt that is cached as a whole."""


class Constant:
    """Says the same of everybody."""

    def salt(self, view: Any) -> bytes:
        return b"everybody"


class Guesses:
    """Says of everybody what the core says of one tenant."""

    def salt(self, view: Any) -> bytes:
        return b"red"


class Lies:
    """An index that does not look at spaces."""

    def identity(self, block_size: int) -> AnySpace:
        return AnySpace(block_size)


PREFIX, RADIX = Prefix(Prefix.Config()), Radix(Radix.Config())
KITS = {
    "prefix": CacheKit([PREFIX]), "radix": CacheKit([RADIX]),
    "constant salt": CacheKit([PREFIX, Constant()]),
    "guessed salt": CacheKit([RADIX, Guesses()]),
    "index that lies": CacheKit([Lies()]), "both": CacheKit([Lies(), Constant()]),
}  # fmt: skip


def start(kit: CacheKit, **settings: Any) -> CacheWatch:
    return watched(kit, SIZES, ManualClock(), CacheSettings(**settings), TierMood())


def found(watch: CacheWatch, tenant: str, prompt: list[int] = PROMPT, **hints: Any) -> int:
    """Cached tokens of a new request. The watch knows whose blocks it may find."""
    name = f"r{len(watch.answers)}"
    context = RequestContext(tenant, cache=CacheHints(**hints))
    watch.add(request(name, prompt, GREEDY.with_(max_tokens=3, ignore_eos=True), context=context))
    watch.drain()
    return watch.answers[(name, 0)].request.first_cached or 0


@pytest.mark.parametrize("name", KITS)
def test_the_same_text_of_another_tenant_is_not_found(name: str) -> None:
    watch = start(KITS[name])
    assert found(watch, "red") == 0
    if "lies" not in name and name != "both":
        assert found(watch, "red") == ALL
    assert found(watch, "green") == 0
    if "lies" not in name and name != "both":
        assert found(watch, "green") == ALL
    assert found(watch, "red\0") == found(watch, "") == found(watch, "default") == 0


@pytest.mark.parametrize("name", KITS)
def test_no_salt_of_a_request_opens_the_blocks_of_another_tenant(name: str) -> None:
    watch = start(KITS[name])
    found(watch, "red")
    found(watch, "red", salt="key")
    guesses = ("red", "key", "tenant", "default", "\0red", "cache_salt", "redkey")
    assert [found(watch, "green", salt=guess) for guess in guesses] == [0] * len(guesses)


def test_a_salt_separates_inside_a_tenant() -> None:
    watch = start(KITS["prefix"])
    salts = ("a", "a", "b", "", "", "b", "a")
    hits = [found(watch, "red", salt=salt) for salt in salts]
    assert hits == [0, ALL, 0, 0, ALL, ALL, ALL]


def test_a_tenant_and_a_salt_of_the_same_text_are_two_things() -> None:
    watch = start(KITS["prefix"], isolates=False)
    assert [found(watch, "x"), found(watch, "", salt="x")] == [0, 0]
    watch = start(KITS["guessed salt"], isolates=False)
    assert [found(watch, "x"), found(watch, "x", salt="red"), found(watch, "x")] == [0, 0, ALL]


@pytest.mark.parametrize("name", ["prefix", "radix", "constant salt"])
@pytest.mark.parametrize(("tokens", "shared"), [(0, 0), (3, 0), (4, 4), (8, 8), (11, 8), (36, 36)])
def test_a_prefix_that_is_no_secret_is_shared_by_whole_blocks(
    name: str, tokens: int, shared: int
) -> None:
    for by_request in (True, False):
        watch = start(KITS[name], shared_prefix_tokens=0 if by_request else tokens)
        hints = {"shared_prefix_tokens": tokens} if by_request else {}
        assert found(watch, "red", **hints) == 0
        assert found(watch, "green", **hints) == shared
        assert found(watch, "blue", salt="x", **hints) == shared
        assert found(watch, "red", **hints) == found(watch, "green", **hints) == ALL
        if by_request:
            assert found(watch, "black") == 0, "who does not share finds nothing"


def test_what_a_request_says_is_stronger_than_the_configuration() -> None:
    watch = start(KITS["prefix"], shared_prefix_tokens=8)
    assert [found(watch, "red"), found(watch, "green", shared_prefix_tokens=0)] == [0, 0]
    assert found(watch, "blue", shared_prefix_tokens=4) == 4
    assert found(watch, "black", shared_prefix_tokens=1000) == 8


def test_what_follows_a_shared_prefix_is_a_secret() -> None:
    """Also where somebody who shares more has published the same text."""
    watch = start(KITS["prefix"], shared_prefix_tokens=8)
    found(watch, "red", shared_prefix_tokens=40)
    assert found(watch, "green") == 8
    assert found(watch, "green", shared_prefix_tokens=40) == ALL


def test_without_isolation_all_share_all_but_for_salts() -> None:
    watch = start(KITS["radix"], isolates=False)
    hits = [found(watch, tenant) for tenant in ("red", "green", "blue")]
    assert hits == [0, ALL, ALL]
    assert [found(watch, "red", salt="x"), found(watch, "green", salt="x")] == [0, ALL]


def test_tenants_at_the_same_time_neither_share_nor_wait_for_each_other() -> None:
    watch = start(KITS["prefix"])
    for place, tenant in enumerate(("red", "green", "red", "green")):
        context = RequestContext(tenant)
        watch.add(
            request(
                f"r{place}", PROMPT, GREEDY.with_(max_tokens=3, ignore_eos=True), context=context
            )
        )
    watch.drain()
    hits = [watch.answers[(f"r{place}", 0)].request.first_cached or 0 for place in range(4)]
    assert hits[:2] == [0, 0] and min(hits[2:]) >= ALL - SIZE


@pytest.mark.parametrize("isolates", [True, False])
@pytest.mark.parametrize("name", KITS)
def test_in_a_crowd_nobody_finds_what_only_others_have_computed(name: str, isolates: bool) -> None:
    settings = CacheSettings(
        isolates=isolates, shared_prefix_tokens=5, transfer_timeout=0.5, transfer_budget=4
    )
    kit = KITS[name]
    if "lies" in name:
        kit = CacheKit([Finds(), Constant()])
    tiered = kit._replace(plugins=[*kit.plugins, EveryMove()], tiers=[TierSpec("host", 8)])
    for seed in range(2):
        watch = cached_life(
            tiered, seed=seed, overlap=seed, steps=60, settings=settings,
            mood=TierMood(lambda random: AnyOrder(random, 0.5)),
            hints=lambda random: CacheHints(
                salt=random.choice(("", "", "red")),
                shared_prefix_tokens=random.choice((None, 0, 4)),
            ),
            may_see=may_see(zone_of(settings, 2)), prepare=lambda one: inspect(settings, one),
        )  # fmt: skip
        metrics = watch.engine.lifecycle.planner.cache.metrics
        assert metrics.hit_tokens > (0 if name == "both" else 50)
