"""Laws of an evictor. `check_evictor` checks all that hold for every policy.

A law takes a subject: the class of a plugin, made with its default configuration; an instance; or
a factory that takes an `EvictionSpace` and the inner evictor, if any. Failures are
`AssertionError`s that begin with the number of the law:

E1 answers are distinct, evictable, and as many as asked for or there are; asking changes nothing.
E2 what is remembered is bounded by the size of the tier. E3 who was removed is not named before it
is inserted again.
E4 no legal order of calls raises. E5 a policy does what its model does. E6 a wrapper changes
nothing while nobody asks to be kept. E7 uses are good for something.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from hypothesis.stateful import run_state_machine_as_test

from jackfield.core.api import DEVICE, BlockMeta, CacheAxis, EvictionSpace, Evictor, EvictorPlugin
from jackfield.core.testing.eviction_machine import eviction_machine
from jackfield.core.testing.eviction_models import ListFifo, ListLru, Policy
from jackfield.core.testing.eviction_tier import LeafTier, Path
from jackfield.core.testing.eviction_traces import (
    FlatCache,
    MakeEvictor,
    content,
    cyclic,
    hits,
    hot_set,
    mixed,
)
from jackfield.core.testing.eviction_walk import Walk, keys_of
from jackfield.core.testing.examples import settings_for

Factory = Callable[[EvictionSpace, Evictor | None], Evictor]
Subject = type[EvictorPlugin] | EvictorPlugin | Factory
ENTRIES_PER_BLOCK = 16
"""What an evictor may hold per block of its tier, wrapped ones counted for themselves."""
SLACK = 512
"""And besides."""
CHURN = 100_000
CAPACITY = 24


def check_evictor(plugin: type[EvictorPlugin] | EvictorPlugin, examples: int = 25) -> None:
    """All laws that hold for every policy; E6 only of wrappers. Takes seconds.

    examples: random lives, and runs of the state machine.
    """
    check_declaration(plugin)
    for seed in range(examples):
        check_life(plugin, seed)
    check_chains(plugin)
    check_memory(plugin)
    check_any_order(plugin, examples)
    if plugin.wraps:
        check_transparency(plugin)


def maker(subject: Subject) -> MakeEvictor:
    """Makes evictors; a plugin that wraps gets a plain LRU to wrap, a bare factory nothing."""
    make = factory(subject)
    wraps = getattr(subject, "wraps", False)
    return lambda space: make(space, ListLru() if wraps else None)


def factory(subject: Subject) -> Factory:
    """The factory of evictors that the subject is, or has."""
    if isinstance(subject, type):
        return _made(subject).evictor
    return subject.evictor if isinstance(subject, EvictorPlugin) else subject


def check_declaration(plugin: type[EvictorPlugin] | EvictorPlugin) -> None:
    """The plugin is on the axis of eviction, and makes a new evictor whenever it is asked."""
    name = getattr(plugin, "__name__", type(plugin).__name__)
    assert plugin.axis is CacheAxis.EVICTION, f"{name} has the axis {plugin.axis!r}"
    space = EvictionSpace(DEVICE, CAPACITY)
    one, two = maker(plugin)(space), maker(plugin)(space)
    assert isinstance(one, Evictor), f"{name}.evictor returned {one!r}"
    assert one is not two, f"{name}.evictor returned the same evictor for two tiers"


def check_life(subject: Subject, seed: int) -> None:
    """E1, E3 and E4 in a random life, at whose end everything can be given up."""
    for neutral in (True, False):
        for capacity in (1, 4, CAPACITY):
            walk = _walk(maker(subject), capacity, seed, neutral=neutral)
            walk.run(300)
            walk.drain()


def check_any_order(subject: Subject, examples: int = 25, steps: int = 40) -> None:
    """E1, E3 and E4 for calls in any legal order."""
    settings = settings_for(examples, stateful_step_count=steps)
    run_state_machine_as_test(eviction_machine(maker(subject)), settings=settings)


def check_chains(subject: Subject) -> None:
    """Whatever the policy, a chain goes from its end to its start."""
    tier = _tier(maker(subject))
    chains = _release(tier, [[0, 0, 0, 0], [1, 0, 0], [2, 2, 2, 2]])
    gone = _evict_singly(tier)
    for chain in chains:
        ours = [block for block in gone if block in chain]
        assert ours == list(reversed(chain)), f"leaf first: {chain} went in the order {ours}"


def check_release_order(subject: Subject) -> None:
    """For policies of recency: of several chains, that goes first which was let go first.

    It goes to its start before the next one is begun: that its blocks become leaves is no use.
    """
    tier = _tier(maker(subject))
    chains = _release(tier, [[0, 0, 0, 0], [1, 0, 0], [2, 2, 2, 2]])
    right = [block for chain in chains for block in reversed(chain)]
    gone = _evict_singly(tier)
    assert gone == right, f"order of release: {gone}, {right} would be right"


def check_memory(subject: Subject, events: int = CHURN) -> None:
    """E2: what is remembered, of blocks that are gone too, does not grow with time.

    Also not when blocks come and go that nobody ever used.
    """
    for neutral in (True, False):
        walk = _walk(maker(subject), CAPACITY, seed=0, neutral=neutral)
        evictor = walk.tier.evictor
        limit = ENTRIES_PER_BLOCK * CAPACITY * _layers(evictor) + SLACK
        for _ in range(10):
            walk.run(events // 10)
            _check_entries(evictor, limit)
        walk.drain()
        for block in range(CHURN, CHURN + 2 * limit):
            evictor.insert([block], [BlockMeta(content(block), 0)], 0.0)
            evictor.remove([block])
        _check_entries(evictor, limit)


def check_transparency(subject: Subject, seeds: int = 10) -> None:
    """E6: around any evictor, while no block has a pin, a priority or an expiry."""
    make = factory(subject)
    for inner in (ListLru, ListFifo):
        check_same_order(_around(make, inner), inner, seeds, "E6")


def check_same_order(
    subject: Subject, model: Callable[[], Evictor], seeds: int = 10, law: str = "E5"
) -> None:
    """E5: in any life of neutral blocks, chains and all, every answer is that of the model."""
    for seed in range(seeds):
        ours = _answers(maker(subject), seed)
        right = _answers(lambda space: model(), seed)
        for number, (one, other) in enumerate(zip(ours, right, strict=False)):
            assert one == other, f"{law}: answer {number} of life {seed} is {one}, not {other}"
        assert len(ours) == len(right), f"{law}: life {seed} goes another way"


def check_same_evictions(
    subject: Subject, model: Callable[[int], Policy], capacities: Sequence[int] = (1, 2, 5, 16)
) -> None:
    """E5: for contents without chains, the same one goes as in the model, request by request."""
    for capacity in capacities:
        for seed in range(10):
            cache, right = FlatCache(maker(subject), capacity), model(capacity)
            for number, asked in enumerate(mixed(seed, 3 * capacity, 600)):
                gone, expected = cache.request(content(asked)), right.request(content(asked))
                where = f"request {number} of trace {seed}, capacity {capacity}"
                assert gone == expected, f"E5: {where}: {gone!r} goes, not {expected!r}"


def check_no_hits_in_a_cycle(subject: Subject) -> None:
    """E7, for LRU alone: what is asked for in turn is never found if one content too many."""
    found = hits(maker(subject), cyclic(CAPACITY + 1, 5), CAPACITY)
    assert found == 0, f"E7: {found} hits on a cycle that is larger than the cache"


def check_beats_fifo(subject: Subject, margin: float = 0.05) -> None:
    """E7: with contents that are asked for often, more is found than by first in, first out.

    margin: by how much more, as a share of the requests for these contents.
    """
    trace = hot_set(hot=30, share=0.6, length=4000)
    ours, plain = (hits(make, trace, 50) for make in (maker(subject), lambda space: ListFifo()))
    wanted = plain + margin * 0.6 * len(trace)
    assert ours >= wanted, f"E7: {ours} hits; FIFO has {plain}, {wanted:.0f} are wanted"


def entries(root: Any) -> int:
    """How many items there are in all lists, sets, tables and the like that an object leads to.

    A tuple counts as one item of the container that it is in.
    """
    total, seen, left = 0, set[int](), [root]
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | type):
            continue
        seen.add(id(thing))
        total += len(thing) if _is_container(thing) else 0
        left += _children(thing)
    return total


def _check_entries(evictor: Evictor, limit: int) -> None:
    held = entries(evictor)
    assert held <= limit, f"E2: it holds {held} entries, {limit} are allowed"


def _is_container(thing: Any) -> bool:
    return hasattr(thing, "__len__") and not isinstance(thing, tuple)


def _children(thing: Any) -> list[object]:
    if isinstance(thing, Mapping):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, list | tuple | AbstractSet | deque):
        return list(thing)
    slots = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
    return [*getattr(thing, "__dict__", {}).values(), *(getattr(thing, n, None) for n in slots)]


def _made(plugin: type[Any]) -> EvictorPlugin:
    made: EvictorPlugin = plugin(plugin.Config())
    return made


def _around(make: Factory, inner: Callable[[], Evictor]) -> Factory:
    return lambda space, _: make(space, inner())


def _layers(evictor: Evictor) -> int:
    inner = getattr(evictor, "_inner", None)
    return 1 + (0 if inner is None else _layers(inner))


def _walk(make: MakeEvictor, capacity: int, seed: int, *, neutral: bool) -> Walk:
    return Walk(make(EvictionSpace(DEVICE, capacity)), capacity, seed, neutral=neutral)


def _answers(make: MakeEvictor, seed: int) -> list[Path]:
    walk = _walk(make, CAPACITY, seed, neutral=True)
    walk.run(1500)
    walk.drain()
    return walk.tier.answers


def _tier(make: MakeEvictor) -> LeafTier:
    return LeafTier(make(EvictionSpace(DEVICE, CAPACITY)), CAPACITY)


def _release(tier: LeafTier, sequences: Sequence[Sequence[int]]) -> list[Path]:
    """Requests that hold their sequences at the same time, and let them go one after another."""
    chains = []
    for tokens in sequences:
        metas = [BlockMeta(key, depth) for depth, key in enumerate(keys_of(tokens))]
        chains.append(tier.open((), metas))
    for chain in chains:
        tier.close(chain)
    return chains


def _evict_singly(tier: LeafTier) -> list[int]:
    gone: list[int] = []
    while tier.blocks:
        gone += tier.evict(1)
    return gone
