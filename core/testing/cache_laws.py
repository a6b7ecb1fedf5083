"""The laws of cache plugins one by one: what each says, and where to look if it fails.

Numbers such as M5 or E9 are those of the messages. M1 each block and slot is in one place, M2 and
its holders are counted right. M3 what is used is not given up, M4 nor written. M5 who finds
something shares with somebody who computed the same. M6 a hit leaves something to compute. M7 what
is being filled is not read. M8 what may be wrong is not published. M9 tiers are never over their
capacity. M10 what builds on a block leaves first. M11 who ends leaves nothing behind. M12 pins and
expiries are kept to. E1 to E7: see `eviction_laws`. E8 nobody waits for a tier longer than
two transfers may take. E9 moves keep to their budget, and take no block from who holds it. T3 the
order of plugins is of no account.
"""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, NamedTuple

from jackfield.core.api import CacheAxis, CacheHints, CachePlugin
from jackfield.core.kv.build import CacheSettings
from jackfield.core.testing import (
    allocator_laws,
    encoding_laws,
    eviction_laws,
    move_laws,
    namespace_laws,
    retention_laws,
)
from jackfield.core.testing.cache_inspectors import inspect, may_see, zone_of
from jackfield.core.testing.cache_lives import CROWDED, TierMood, cached_life
from jackfield.core.testing.cache_machine import TIMEOUT, MakeKit, cache_machine
from jackfield.core.testing.cache_stacks import MakeCache, around, without
from jackfield.core.testing.cache_watch import CacheWatch
from jackfield.core.testing.fake_pace import AfterCalls, AnyOrder, Pace
from jackfield.core.testing.index_laws import check_index
from jackfield.core.testing.scheduler_machine import run_machine

Check = Callable[[MakeCache, int], None]
HOOK_OF = {
    CacheAxis.ALLOCATOR: "layout", CacheAxis.ENCODING: "encode", CacheAxis.IDENTITY: "identity",
    CacheAxis.NAMESPACE: "salt", CacheAxis.RETENTION: "retain", CacheAxis.TIER: "tiers",
    CacheAxis.EVICTION: "evictor",
}  # fmt: skip
RUNS = ("identity", "salt", "retain", "move", "evictor")
"""Hooks whose plugins are called while an engine runs."""
MOODS = (
    TierMood(), TierMood(lambda random: AnyOrder(random, 0.3), 0.1, 0.3),
    TierMood(lambda random: AfterCalls(3), 0.0, 0.5), TierMood(lambda random: Pace(), 0.0, 0.3),
)  # fmt: skip
SETTINGS = CacheSettings(transfer_budget=4, transfer_timeout=TIMEOUT, shared_prefix_tokens=4)
OUTSIDE = "an answer that depends on more than the arguments: a clock, a generator, a count"


class CacheLaw(NamedTuple):
    """name: of one law or several. says: the law. look: what is likely to blame."""

    name: str
    says: str
    look: str
    check: Check


def check_sharing(make: MakeCache, examples: int = 1) -> None:
    """Hits are as many as without the plugin, if it is an index; otherwise there are some."""
    found = _hits(around(make)[0])
    assert found > 0, "M5: nobody found anything that another one has computed"
    if hasattr(make(), "identity"):
        plain = _hits(without(make))
        assert found == plain, f"M5: {found} tokens were found, {plain} are there to be found"


SHARING = CacheLaw(
    "sharing",
    "M5: requests that are alike find what others have computed, as much as there is.",
    "salts that tell everybody apart, an index that finds nothing",
    check_sharing,
)


def cache_laws_of(make: MakeCache) -> Iterator[CacheLaw]:
    """All laws that the plugin has to keep, by the hooks that it has."""
    plugin = make()
    yield CacheLaw(
        "declaration",
        "The plugin has the hook of its axis, and a new instance is as good as the first.",
        "`axis`, and the names of the hooks",
        check_declaration,
    )
    for hook, law in _hook_laws():
        if hasattr(plugin, hook):
            yield law
    if any(hasattr(plugin, hook) for hook in RUNS):
        yield from _lives()
    if any(hasattr(plugin, hook) for hook in RUNS) and not hasattr(plugin, "retain"):
        yield SHARING


def check_declaration(make: MakeCache, examples: int = 1) -> None:
    """What the host asks of a plugin before anything else."""
    plugin = make()
    name = type(plugin).__name__
    assert isinstance(plugin, CachePlugin), f"{name} is no CachePlugin"
    axis = getattr(plugin, "axis", None)
    assert isinstance(axis, CacheAxis), f"{name} has the axis {axis!r}"
    hook = HOOK_OF[axis]
    assert hasattr(plugin, hook), f"{name} has the axis {axis.value!r} and no hook {hook!r}"


def _hook_laws() -> Iterator[tuple[str, CacheLaw]]:
    def law(name: str, says: str, look: str, check: Callable[[Any], None]) -> CacheLaw:
        return CacheLaw(name, says, look, partial(_once, check))

    yield "layout", law(
        "layout", "The layout is one, and the same when asked again.", "`layout`",
        allocator_laws.check_layouts,
    )  # fmt: skip
    yield "layout", law(
        "blocks", "Engines with blocks of this size answer right.", "the block size",
        allocator_laws.check_blocks,
    )  # fmt: skip
    yield "encode", law(
        "encoding", "Every layer group has a sensible encoding, always the same.", OUTSIDE,
        encoding_laws.check_encodings,
    )  # fmt: skip
    yield "identity", law(
        "index", "The index finds what is known, all of it, and nothing else.",
        "`match`, and what `remove` leaves behind", lambda one: check_index(one.identity),
    )  # fmt: skip
    yield "salt", law(
        "salt", "M5: requests that are alike have the same salt, in bytes.", OUTSIDE,
        namespace_laws.check_salts,
    )  # fmt: skip
    yield "retain", law(
        "keeps", "There is one `Keep` for each that is released, with sensible values.", "`retain`",
        retention_laws.check_answers,
    )  # fmt: skip
    yield "retain", law(
        "folds", "T3: beside other plugins the order of answers is of no account.", "`retain`",
        retention_laws.check_folds,
    )  # fmt: skip
    yield "tiers", law(
        "tiers", "M9: tiers have distinct names and at least one slot.", OUTSIDE,
        move_laws.check_tiers,
    )  # fmt: skip
    yield "store", law(
        "stores", "A store gives back what it was given, for every tier.", "`put` and `get`",
        move_laws.check_stores,
    )  # fmt: skip
    yield "move", law(
        "moves", "E9: candidates are moved, each once, and no more than the budget.", "`move`",
        move_laws.check_moves,
    )  # fmt: skip
    says = "E1-E4, E6: victims are right, memory is bounded, wrappers change nothing by themselves."
    yield "evictor", CacheLaw("evictor", says, "the method that the message names", _evictor)


def _once(check: Callable[[Any], None], make: MakeCache, examples: int) -> None:
    check(make())


def _evictor(make: MakeCache, examples: int) -> None:
    eviction_laws.check_evictor(make(), examples)  # type: ignore[arg-type]


def _lives() -> Iterator[CacheLaw]:
    yield CacheLaw(
        "lives[M1-M12, E8, E9]",
        "Whatever happens, answers are right, nothing is lost, and nobody is charged a fault.",
        "the number in the message; if it has none, what the method that it names returned",
        check_lives,
    )
    yield CacheLaw(
        "determinism",
        "The same events give the same plans, position by position.",
        OUTSIDE,
        check_determinism,
    )
    yield CacheLaw(
        "machine",
        "All of this through arrivals, aborts, resets, transfers and jumps of the clock.",
        "the steps below, which are the shortest that were found",
        check_machine,
    )


def check_lives(make: MakeCache, examples: int) -> None:
    """Random lives in every stack, at every overlap, with tiers in every mood."""
    for number, kit in enumerate(around(make)):
        for seed in range(max(examples // 5, len(MOODS))):
            live(kit, seed, overlap=(seed + number) % 3)


def live(kit: MakeKit, seed: int, *, overlap: int = 0, steps: int = 60) -> CacheWatch:
    """One life, in which no plugin may be at fault."""
    zone = zone_of(SETTINGS, CROWDED.block_size)
    watch = cached_life(
        kit(), seed=seed, overlap=overlap, steps=steps, settings=SETTINGS, hints=_hints,
        mood=MOODS[seed % len(MOODS)], may_see=may_see(zone), prepare=partial(inspect, SETTINGS),
    )  # fmt: skip
    counts = watch.engine.fault_counts()
    if counts:
        guards = watch.engine._policies.guards
        said = {guard.plugin: guard.last_fault for guard in guards if guard.faults}
        raise AssertionError(f"faults were counted: {said}")
    return watch


def _hints(random: Random) -> CacheHints:
    return CacheHints(
        ttl=random.choice((None, None, 0.5, 3.0)), pin=random.random() < 0.2,
        salt=random.choice(("", "", "x")), shared_prefix_tokens=random.choice((None, None, 0, 3)),
    )  # fmt: skip


def _hits(kit: MakeKit) -> int:
    return sum(
        live(kit, seed, steps=80).engine.lifecycle.planner.cache.metrics.hit_tokens
        for seed in range(2)
    )


def check_determinism(make: MakeCache, examples: int = 1) -> None:
    """In every stack."""
    for seed, kit in enumerate(around(make)):
        first, second = live(kit, seed).trace, live(kit, seed).trace
        assert first == second, "the same events gave different plans"


def check_machine(make: MakeCache, examples: int) -> None:
    """All stacks at once."""
    run_machine(cache_machine(around(make)), examples)
