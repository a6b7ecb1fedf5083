"""Every installed evictor keeps the laws, and those that come along do what their models do."""

from collections.abc import Callable
from importlib.metadata import entry_points

import pytest
from hypothesis import settings

from jackfield.core.api import EvictionSpace, Evictor, EvictorPlugin
from jackfield.core.testing import eviction_laws as laws
from jackfield.core.testing.eviction_models import ListLru, ModelLfu, ModelSlru, PaperArc, Policy
from jackfield.plugins.cache.arc import Arc
from jackfield.plugins.cache.lfu import Lfu
from jackfield.plugins.cache.lru import Lru
from jackfield.plugins.cache.pin import Pin
from jackfield.plugins.cache.slru import Slru, SlruConfig
from jackfield.plugins.cache.ttl import Ttl

BASES: list[type[EvictorPlugin]] = [Lru, Lfu, Slru, Arc]
WRAPPERS: list[type[EvictorPlugin]] = [Ttl, Pin]
CACHES = [one.load() for one in entry_points(group="jackfield.v1.caches")]
EVICTORS = [each for each in CACHES if hasattr(each, "evictor")]


def stack(*plugins: type[EvictorPlugin]) -> laws.Factory:
    """The evictors of a tier that names these plugins."""

    def make(space: EvictionSpace, _: Evictor | None) -> Evictor:
        inner = None
        for plugin in reversed(plugins):
            inner = plugin(plugin.Config()).evictor(space, inner)
        assert inner is not None
        return inner

    return make


@pytest.mark.parametrize("plugin", EVICTORS, ids=lambda plugin: plugin.__name__)
def test_all_laws(plugin: type[EvictorPlugin]) -> None:
    assert settings.default is not None
    laws.check_evictor(plugin, max(25, settings.default.max_examples // 10))


def test_every_evictor_that_comes_along_is_installed() -> None:
    assert {*BASES, *WRAPPERS} <= set(EVICTORS)


@pytest.mark.parametrize("base", BASES, ids=lambda plugin: plugin.__name__)
def test_stacks_keep_the_laws(base: type[EvictorPlugin]) -> None:
    for seed in range(5):
        laws.check_life(stack(Pin, Ttl, base), seed)
        laws.check_life(stack(Ttl, Pin, base), seed)
    laws.check_any_order(stack(Pin, Ttl, base), examples=10)
    laws.check_memory(stack(Pin, Ttl, base), events=20_000)


@pytest.mark.parametrize("base", BASES, ids=lambda plugin: plugin.__name__)
def test_wrappers_change_nothing_around_neutral_blocks(base: type[EvictorPlugin]) -> None:
    def inner() -> Evictor:
        return stack(base)(EvictionSpace("device", laws.CAPACITY), None)

    for wrappers in ([Ttl], [Pin], [Pin, Ttl]):
        laws.check_same_order(stack(*wrappers, base), inner, seeds=5, law="E6")


@pytest.mark.parametrize("subject", [Lru, stack(Pin, Ttl, Lru)], ids=["lru", "default"])
def test_lru_is_a_list(subject: laws.Subject) -> None:
    laws.check_same_order(subject, ListLru, seeds=30)
    laws.check_release_order(subject)
    laws.check_no_hits_in_a_cycle(subject)


@pytest.mark.parametrize("plugin", [Arc, Slru], ids=lambda plugin: plugin.__name__)
def test_chains_that_were_used_once_go_in_the_order_of_their_release(
    plugin: type[EvictorPlugin],
) -> None:
    laws.check_release_order(plugin)


@pytest.mark.parametrize(
    ("plugin", "model"),
    [
        (Arc, PaperArc),
        (Lfu, ModelLfu),
        (Slru, lambda capacity: ModelSlru(capacity, int(0.8 * capacity))),
        (Slru(SlruConfig(protected=0.25)), lambda capacity: ModelSlru(capacity, capacity // 4)),
        (Slru(SlruConfig(protected=0)), lambda capacity: ModelSlru(capacity, 0)),
        (Slru(SlruConfig(protected=1)), lambda capacity: ModelSlru(capacity, capacity)),
    ],
    ids=["arc", "lfu", "slru", "slru quarter", "slru none", "slru all"],
)
def test_policies_are_their_models(plugin: laws.Subject, model: Callable[[int], Policy]) -> None:
    laws.check_same_evictions(plugin, model)


@pytest.mark.parametrize("plugin", BASES, ids=lambda plugin: plugin.__name__)
def test_what_is_used_often_is_found_more_often_than_by_fifo(plugin: type[EvictorPlugin]) -> None:
    laws.check_beats_fifo(plugin)
