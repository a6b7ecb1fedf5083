"""Loads blocks of requests that wait from tiers, if that is faster than computing them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.entry import Entry
from jackfield.core.kv.load import Later, Load
from jackfield.core.kv.order_book import OrderBook
from jackfield.core.kv.request_chain import RequestChain
from jackfield.core.kv.tier import Tier
from jackfield.core.kv.transfers import TransferEnd, TransferKind

SMOOTHING = 0.2
FORGETTING = 0.9
UNKNOWN = -1.0


class LoaderSettings(NamedTuple):
    """most_blocks: of the pool that may be filled for requests that wait, unless it is only one.
    timeout: seconds."""

    most_blocks: int
    timeout: float


class Loader:
    """Owns the loads. Their blocks belong to the cache, which can take them back.

    recompute_seconds: how long computing so many tokens would take; None = nobody knows yet.
    """

    def __init__(
        self,
        cache: BlockCache,
        book: OrderBook,
        settings: LoaderSettings,
        recompute_seconds: Callable[[int], float | None],
    ) -> None:
        self._cache = cache
        self._residency = cache.residency
        self._tiers: list[Tier] = list(cache.residency.tiers.values())
        self._book = book
        self._settings = settings
        self._recompute_seconds = recompute_seconds
        self._loads: dict[RequestChain, Load] = {}
        self._num_loading = 0
        self._seconds = dict.fromkeys(cache.residency.tiers, UNKNOWN)

    def load(self, chain: RequestChain, most_blocks: int) -> Load | Later | None:
        """Begin to load what a tier holds of the chain behind the device's part; None if there is
        nothing, no room, or if computing it again is faster.

        most_blocks: that may be taken for it.
        """
        if chain.recomputes or not self._tiers:
            return None
        load = self._loads.get(chain)
        if load is not None:
            chain.recomputes = self._cache.now >= load.deadline
            return load if load.pending and not chain.recomputes else None
        found = self._cache.find(chain)
        first = self._cache.on_device(chain)
        if first < len(found) and found[first].loading:
            return Later.SHARED
        room = max(most_blocks - self._cache.num_idle(found[:first]), 0)
        wanted = found[first : first + room]
        wanted = wanted[: self._readable(wanted)]
        if not wanted:
            return None
        if not self._is_faster(wanted):
            chain.recomputes = True
            self._cache.metrics.not_loaded += 1
            self._doubt(wanted)
            return None
        if self._is_full(len(wanted)):
            self.revoke(chain)  # or those whose turn comes later would keep this one out
        if self._is_full(len(wanted)):
            return Later.FULL
        return self._begin(chain, found[:first], wanted)

    def _is_full(self, count: int) -> bool:
        """Whether so many blocks more are too many; one load is never too large."""
        return bool(self._loads) and self._num_loading + count > self._settings.most_blocks

    def _readable(self, entries: Sequence[Entry]) -> int:
        for index, entry in enumerate(entries):
            if entry.loading or self._source(entry) is None:
                return index
        return len(entries)

    def _source(self, entry: Entry) -> Tier | None:
        """The fastest tier that holds the entry."""
        for tier in self._tiers:
            if tier.name in entry.slots and tier.off is None:
                return tier
        return None

    def _is_faster(self, entries: Sequence[Entry]) -> bool:
        """Whether loading is predicted to take no longer than computing; yes if nobody knows."""
        loading = 0.0
        for entry in entries:
            tier = self._source(entry)
            assert tier is not None
            loading += max(self._seconds[tier.name], 0.0)
        computing = self._recompute_seconds(len(entries) * self._cache.pool.block_size)
        return computing is None or loading <= computing

    def _begin(self, chain: RequestChain, held: Sequence[Entry], entries: Sequence[Entry]) -> Load:
        # The step that is being planned comes first; a transfer is late by itself.
        load = Load(chain, list(entries), self._cache.now + 2 * self._settings.timeout)
        for entry in held:
            self._hold(load, entry)
        after = held[-1].block if held else None
        for entry in entries:
            (after,) = self._cache.pool.take_unheld(1, after)
            self._residency.attach(entry, after)
            self._residency.set_loading(entry, True)
            self._hold(load, entry)
            self._order_load(load, entry)
        self._residency.known(load.entries)
        self._num_loading += len(entries)
        self._loads[chain] = load
        return load

    def _hold(self, load: Load, entry: Entry) -> None:
        self._residency.hold(entry, 1)
        load.held.append(entry)

    def _order_load(self, load: Load, entry: Entry) -> None:
        tier = self._source(entry)
        assert tier is not None
        slot = entry.slots[tier.name]
        tier.read(slot, 1)
        self._residency.transfer(entry, 1)
        self._residency.refresh(entry)
        now, block = self._cache.now, entry.block
        number = self._book.add(TransferKind.LOAD, tier, slot, entry, now, block=block, load=load)
        load.pending.add(number)

    def end_load(self, chain: RequestChain) -> None:
        """The request has its seat, or does not want it any more: what was loaded is cached."""
        load = self._loads.pop(chain, None)
        if load is None:
            return
        self._num_loading -= len(load.entries)
        for entry in reversed(load.held):
            if not entry.dead:
                self._residency.hold(entry, -1)
        load.held.clear()

    def revoke(self, but: RequestChain | None = None) -> bool:
        """Take back what is held for requests that wait; whether there was any.

        but: whose load stays.
        """
        chains = [chain for chain, load in self._loads.items() if load.is_done and chain is not but]
        for chain in chains:
            self.end_load(chain)
        return bool(chains)

    def ended(self, load: Load, tier: Tier, end: TransferEnd) -> bool:
        """One of its transfers has ended; whether the load is over, and somebody waits for it."""
        load.pending.discard(end.number)
        load.seconds = max(load.seconds, end.seconds)
        if end.error is not None:
            load.chain.recomputes = True
        elif load.is_done and load.seconds > 0:
            self._measure(tier, load.seconds / len(load.entries))
        return load.is_done and self._loads.get(load.chain) is load

    def _measure(self, tier: Tier, seconds: float) -> None:
        known = self._seconds[tier.name]
        new = seconds if known < 0 else known + SMOOTHING * (seconds - known)
        self._seconds[tier.name] = new

    def _doubt(self, entries: Sequence[Entry]) -> None:
        """What was found slow is tried again some time."""
        for tier in {self._source(entry) for entry in entries}:
            if tier is not None:
                self._seconds[tier.name] *= FORGETTING

    def check(self) -> dict[int, int]:
        """How often loads count on each entry, by its id. Raises `AssertionError`."""
        loading = sum(len(load.entries) for load in self._loads.values())
        limit = self._settings.most_blocks
        assert loading == self._num_loading, "what is being loaded is counted wrong"
        assert loading <= limit or len(self._loads) == 1, "too much is being loaded"
        held: dict[int, int] = {}
        for load in self._loads.values():
            for entry in load.held:
                if not entry.dead:
                    held[entry.id] = held.get(entry.id, 0) + 1
        return held
