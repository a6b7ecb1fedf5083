"""The kit for caches finds broken cores, each by its law."""

from collections.abc import Callable
from typing import Any

import pytest

from jackfield.core.api import (
    RequestContext,
    TierSpec,
)
from jackfield.core.engine import detours
from jackfield.core.engine import planner as planner_module
from jackfield.core.engine.reuse import Reuse, reuse_of
from jackfield.core.kv import keeping as keeping_module
from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.entry import NO_BLOCK, Entry
from jackfield.core.kv.keeping import Keeping
from jackfield.core.kv.move_policy import TierPair
from jackfield.core.kv.mover import Mover, MoverSettings
from jackfield.core.kv.namespaces import Namespaces
from jackfield.core.kv.pool import BlockPool
from jackfield.core.kv.residency import Residency
from jackfield.core.kv.tier import Tier
from jackfield.core.testing.cache_hostile import Finds
from jackfield.core.testing.cache_laws import MOODS, SETTINGS, live
from jackfield.core.testing.cache_lives import TENANTS, TierMood
from jackfield.core.testing.cache_machine import cache_machine, watched
from jackfield.core.testing.cache_watch import CacheWatch
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, request
from jackfield.core.testing.memory import CacheKit, EveryMove

Patch = pytest.MonkeyPatch
TIERS = (TierSpec("host", 6), TierSpec("disk", 9))


def crowded() -> CacheKit:
    """Everything that a cache can do happens in lives with it."""
    return CacheKit([Finds(), EveryMove()], tiers=TIERS)


def lives(kit: Callable[[], CacheKit] = crowded) -> None:
    for seed in range(8 * len(MOODS)):
        live(kit, seed, overlap=seed % 3, steps=80)


def loses_blocks(patch: Patch) -> None:
    patch.setattr(BlockPool, "give", lambda *_: None)


def miscounts_holders(patch: Patch) -> None:
    patch.setattr(BlockPool, "share", lambda *_: None)


def frees_what_a_transfer_touches(patch: Patch) -> None:
    detach = Residency._detach

    def careless(self: Residency, entry: Entry, freed: list[int]) -> None:
        block = entry.block
        detach(self, entry, freed)
        if block in self.orphans:
            self.release_orphan(block)

    patch.setattr(Residency, "_detach", careless)


def evicts_what_is_held(patch: Patch) -> None:
    patch.setattr(Residency, "anchor", lambda *_: None)


def writes_on_shared_blocks(patch: Patch) -> None:
    def shares_all(request: Any, cache: BlockCache) -> Reuse:
        found = reuse_of(request, cache)
        if found.source == NO_BLOCK or request.group is not None:
            return found
        entries = request.chain.found[: len(found.entries) + 1]
        return found._replace(entries=entries, source=NO_BLOCK)

    patch.setattr(planner_module, "reuse_of", shares_all)


def forgets_tenants(patch: Patch) -> None:
    of = Namespaces.of

    def careless(self: Namespaces, request: Any) -> Any:
        self._isolates = False
        return of(self, request)

    patch.setattr(Namespaces, "of", careless)


def finds_one_token_too_many(patch: Patch) -> None:
    def too_many(request: Any, cache: BlockCache) -> Reuse:
        found = reuse_of(request, cache)
        return found._replace(num_tokens=found.num_tokens + 1) if found.num_tokens else found

    patch.setattr(planner_module, "reuse_of", too_many)


def reads_what_is_being_filled(patch: Patch) -> None:
    patch.setattr(Residency, "set_loading", lambda *_: None)


def believes_failed_loads(patch: Patch) -> None:
    ended = Mover.ended
    patch.setattr(
        Mover, "ended", lambda self, ends: ended(self, [end._replace(error=None) for end in ends])
    )


def fills_more_slots_than_there_are(patch: Patch) -> None:
    def another(self: Tier) -> int:
        self.filling.add(self.spec.num_slots)
        return self.spec.num_slots

    patch.setattr(Tier, "num_free", property(lambda self: 1))
    patch.setattr(Tier, "take_slot", another)


def leaves_children_behind(patch: Patch) -> None:
    patch.setattr(Entry, "family", lambda self: [self])


def keeps_leases_of_the_dead(patch: Patch) -> None:
    patch.setattr(BlockCache, "close", lambda *_: None)


def pins_without_end(patch: Patch) -> None:
    def pin(self: Keeping, entry: Entry) -> None:
        entry.pinned = True
        self._residency.num_pinned += 1

    patch.setattr(Keeping, "_pin", pin)


def never_lets_expire(patch: Patch) -> None:
    patch.setattr(keeping_module, "heappush", lambda *_: None)


def waits_for_ever(patch: Patch) -> None:
    detour = detours.Detour
    patch.setattr(
        detours,
        "Detour",
        lambda request, code, reason, until, *more: detour(
            request, code, reason, until + 1000, *more
        ),
    )


def moves_what_is_held(patch: Patch) -> None:
    """Away from who holds it, that is: the copy takes the block's place."""
    fill = Residency.fill_slot

    def careless(self: Residency, entry: Entry, *rest: Any) -> None:
        fill(self, entry, *rest)
        if entry.block != NO_BLOCK and not entry.device_children:
            self.detach(entry)

    patch.setattr(Residency, "fill_slot", careless)


def moves_what_is_being_filled(patch: Patch) -> None:
    patch.setattr(Entry, "on_device", property(lambda self: self.block != NO_BLOCK))
    may_copy = TierPair.may_copy

    def anything(self: TierPair, entry: Entry) -> bool:
        if self.above is not None:
            return may_copy(self, entry)
        return entry.block != NO_BLOCK and self.below.name not in entry.slots

    patch.setattr(TierPair, "may_copy", anything)


BROKEN = [
    ("M1", loses_blocks, r"is in \d states|of \d+ free blocks|M11"),
    ("M2", miscounts_holders, r"tables hold it, counted|was released twice"),
    ("M3", frees_what_a_transfer_touches, r"M3: block|is in \d states|is free twice|transfer"),
    ("M3", evicts_what_is_held, r"anchors, not|idle, counted"),
    ("M4", writes_on_shared_blocks, r"M4: |of several tables"),
    ("M5", forgets_tenants, r"M5: |share a block and may not"),
    ("M6", finds_one_token_too_many, r"M6: "),
    ("M7", reads_what_is_being_filled, r"which transfer \d+ \(load\) fills|M7|should be"),
    ("M7", believes_failed_loads, r"is recorded with|nothing sensible|reads the empty slot"),
    ("M9", fills_more_slots_than_there_are, r"names slot \d+ of \d+|over its capacity"),
    ("M10", leaves_children_behind, r"has lost what it builds on|without what it builds on"),
    ("M11", keeps_leases_of_the_dead, r"M11: a lease is left"),
    ("M12", pins_without_end, r"M12: \d+ blocks are pinned"),
    ("M12", never_lets_expire, r"M12: .* has expired"),
    ("E8", waits_for_ever, r"E8: "),
    ("E9", moves_what_is_held, r"holds something else|M3: |is kept by|, but not its parent"),
    ("E9", moves_what_is_being_filled, r"E9: |which transfer \d+ \(load\) fills"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("law", "breaks", "message"), BROKEN, ids=lambda one: getattr(one, "__name__", None)
)
def test_a_broken_core_is_found(
    law: str, breaks: Callable[[Patch], None], message: str, monkeypatch: Patch
) -> None:
    breaks(monkeypatch)
    with pytest.raises(AssertionError, match=message):
        lives()


def test_a_sound_core_passes() -> None:
    lives()


def watch_of(kit: CacheKit, **sizes: Any) -> CacheWatch:
    size = Sizes(**{"num_blocks": 32, "block_size": 4, "max_tokens": 16, **sizes})
    return watched(kit, size, ManualClock(), SETTINGS, TierMood())


def ask(watch: CacheWatch, name: str, tenant: str, length: int = 16) -> None:
    context = RequestContext(tenant)
    watch.add(
        request(name, range(length), GREEDY.with_(max_tokens=2, ignore_eos=True), context=context)
    )
    watch.drain()


def test_m4_a_block_that_nobody_holds_is_not_written_either(monkeypatch: Patch) -> None:
    writes_on_shared_blocks(monkeypatch)
    watch = watch_of(CacheKit([Finds()]))
    ask(watch, "a", TENANTS[0])
    with pytest.raises(AssertionError, match=r"M4: b writes block \d+, which is published"):
        ask(watch, "b", TENANTS[0])


def test_m5_a_block_of_another_tenant_is_not_found_later_either(monkeypatch: Patch) -> None:
    forgets_tenants(monkeypatch)
    watch = watch_of(CacheKit([Finds()]))
    ask(watch, "a", TENANTS[0])
    with pytest.raises(AssertionError, match="M5: b of green found 15 tokens; nobody who shares"):
        ask(watch, "b", TENANTS[1])


def test_m8_what_a_failed_step_was_to_write_is_not_found(monkeypatch: Patch) -> None:
    """With the answer's end and with its beginning: the step that fails, and what it published."""

    def fails() -> None:
        watch = watch_of(CacheKit([Finds()]))
        watch._may_reject = True
        executor, calls = watch.executor, iter(range(100))
        forward, sample, collect = executor.forward, executor.sample, executor.collect

        def broken(plan: Any) -> Any:
            if next(calls) == 1:
                executor._seat(plan)
                executor.last_plan = plan
                return None
            return forward(plan)

        def ends(ticket: Any) -> Any:
            if ticket is None:
                raise RuntimeError("no")
            return collect(ticket)

        monkeypatch.setattr(executor, "forward", broken)
        monkeypatch.setattr(executor, "sample", lambda one, late: one and sample(one, late))
        monkeypatch.setattr(executor, "collect", ends)
        ask(watch, "a", TENANTS[0], 40)
        ask(watch, "b", TENANTS[0], 40)

    fails()
    monkeypatch.setattr(BlockCache, "invalidate", lambda *_: set())
    with pytest.raises(AssertionError, match="holds nothing sensible"):
        fails()


def test_e9_more_than_the_budget_is_found(monkeypatch: Patch) -> None:
    def moves_at_once() -> None:
        kit = CacheKit([Finds(), EveryMove()], tiers=[TierSpec("host", 20)])
        settings = SETTINGS._replace(transfer_budget=2)
        watch = watched(kit, Sizes(max_tokens=64), ManualClock(), settings, TierMood())
        for place in range(4):
            watch.add(
                request(f"r{place}", [place] * 9, GREEDY.with_(max_tokens=1, ignore_eos=True))
            )
        for _ in range(9):
            watch.step()

    moves_at_once()
    monkeypatch.setattr(MoverSettings, "blocks_per_step", property(lambda self: 1000))
    with pytest.raises(AssertionError, match=r"E9: \d+ blocks go to host, 2 may"):
        moves_at_once()


def test_the_machine_finds_a_tenant_that_is_forgotten(monkeypatch: Patch) -> None:
    forgets_tenants(monkeypatch)
    machine: Any = cache_machine([lambda: CacheKit([Finds()])])()
    machine.begin(Sizes(), SETTINGS, lambda: CacheKit([Finds()]), "at once", 0.0, 0.0)
    machine.arrive(list(range(9)), GREEDY, RequestContext(TENANTS[0]))
    machine.drain()
    machine.arrive(list(range(9)), GREEDY, RequestContext(TENANTS[1]))
    with pytest.raises(AssertionError, match="M5: r2 of green found"):
        machine.step(1)
