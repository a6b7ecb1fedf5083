"""Moves blocks between the device and its tiers: what is ordered, under way, and late."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.entry import NO_BLOCK, Entry
from jackfield.core.kv.load import Later, Load
from jackfield.core.kv.loader import Loader, LoaderSettings
from jackfield.core.kv.move_policy import MovePolicy, TierPair, view_of
from jackfield.core.kv.order_book import OrderBook, Pending
from jackfield.core.kv.request_chain import RequestChain
from jackfield.core.kv.tier import Tier
from jackfield.core.kv.transfers import Transfer, TransferEnd, TransferKind

MOST_FAILURES = 3
"""In a row, after which a tier is not used any more."""


class MoverSettings(NamedTuple):
    """block_bytes: of one block. budget: bytes per step and direction. loading: blocks of the pool
    that may be filled for requests that wait. timeout: seconds."""

    block_bytes: int
    budget: int
    loading: int
    timeout: float

    @property
    def blocks_per_step(self) -> int:
        """At least one, so that something moves."""
        return max(self.budget // self.block_bytes, 1)


class Mover:
    """Orders transfers and accounts for them; the executor runs them."""

    def __init__(
        self,
        cache: BlockCache,
        settings: MoverSettings,
        policy: MovePolicy,
        recompute_seconds: Callable[[int], float | None],
    ) -> None:
        self._cache = cache
        self._residency = cache.residency
        self._tiers: list[Tier] = list(cache.residency.tiers.values())
        self._settings = settings
        self._policy = policy
        self._book = OrderBook()
        loading = LoaderSettings(settings.loading, settings.timeout)
        self._loader = Loader(cache, self._book, loading, recompute_seconds)

    @property
    def is_busy(self) -> bool:
        """Whether the end of a transfer is awaited."""
        return bool(self._book.pending)

    @property
    def reserved(self) -> Iterable[int]:
        """Blocks that have lost their entry while a transfer touches them."""
        return self._residency.orphans

    # -- loads

    def load(self, chain: RequestChain, most_blocks: int) -> Load | Later | None:
        """See `Loader`."""
        return self._loader.load(chain, most_blocks)

    def end_load(self, chain: RequestChain) -> None:
        """See `Loader`."""
        self._loader.end_load(chain)

    def revoke(self, but: RequestChain | None = None) -> bool:
        """See `Loader`."""
        return self._loader.revoke(but)

    # -- orders

    def orders(self, now: float, running: Iterable[RequestChain]) -> list[Transfer]:
        """What the executor has to start after the step that was submitted last.

        running: chains of the requests that hold seats, the last admitted first.
        """
        if self._tiers:
            self._move_down(running)
        # A slot that was dropped may be the target of a transfer already.
        drops = [Transfer(0, TransferKind.DROP, *one) for one in self._residency.dropped]
        self._residency.dropped.clear()
        return drops + self._book.take(now)

    def _move_down(self, running: Iterable[RequestChain]) -> None:
        for above, below in zip([None, *self._tiers], self._tiers, strict=False):
            if below.off is None and (above is None or above.off is None):
                self._move(TierPair(above, below), running if above is None else ())

    def _move(self, pair: TierPair, running: Iterable[RequestChain]) -> None:
        under_way = self._book.under_way(pair.below.name)
        limit = self._settings.blocks_per_step - under_way
        if limit <= 0 or not self._policy.asks:
            return
        candidates = self._candidates(pair, limit, running)
        if not candidates:
            return
        size = self._settings.block_bytes
        view = view_of(pair, candidates, self._residency, size, under_way)
        chosen = self._policy.choose(view, candidates, limit * size)
        # What is copied cannot be given up meanwhile: half of what is free stays free.
        spare = max(self._cache.pool.num_free // 2, 1)
        for entry in chosen[:limit]:
            cost = _kept_by(entry) if pair.above is None else 0
            if cost <= spare:
                spare -= cost
                if not self._copy_down(pair, entry):
                    return

    def _candidates(
        self, pair: TierPair, limit: int, running: Iterable[RequestChain]
    ) -> list[Entry]:
        """Copies above without one below: leased ones first, then those that would be given up
        first, each with what it builds on, then those of running requests."""
        found: dict[int, Entry] = {}
        for chain in self._cache.leased:
            for entry in chain.leased:
                if len(found) < 2 * limit and not entry.dead and self._may_copy(pair, entry):
                    found[entry.id] = entry
        order = self._residency.order if pair.above is None else pair.above.order
        for leaf in order.victims(limit, self._cache.now):
            above: Entry | None = leaf
            while above is not None and len(found) < 2 * limit and pair.holds(above):
                if self._may_copy(pair, above):
                    found[above.id] = above
                above = above.parent
        for chain in running:
            if len(found) >= 2 * limit:
                break
            found.update((entry.id, entry) for entry in _not_copied(chain, pair))
        return list(found.values())

    def _may_copy(self, pair: TierPair, entry: Entry) -> bool:
        """Not what a running request holds: that comes last."""
        if not pair.may_copy(entry):
            return False
        return pair.above is not None or not self._cache.pool.holders(entry.block)

    def _copy_down(self, pair: TierPair, entry: Entry) -> bool:
        """Order the copy; False if the tier below has no slot for it."""
        if entry.dead or not pair.may_copy(entry):
            return True
        slot = self._residency.make_slot(pair.below)
        if slot is None:
            return False
        if entry.dead:
            self._residency.fail_slot(pair.below, slot)
            return True
        now = self._cache.now
        if pair.above is None:
            self._residency.transfer(entry, 1)
            block = entry.block
            self._book.add(TransferKind.STORE, pair.below, slot, entry, now, block=block)
            return True
        source = entry.slots[pair.above.name]
        pair.above.read(source, 1)
        self._residency.refresh(entry)
        self._book.add(
            TransferKind.SPILL, pair.below, slot, entry, now, block=source, above=pair.above.name
        )
        return True

    # -- ends

    def ended(self, ends: Sequence[TransferEnd]) -> list[RequestChain]:
        """Account for transfers that have ended; returns the requests whose loads are over."""
        over = []
        for end in ends:
            number, error, _ = end
            pending = self._book.pending.pop(number, None)
            if pending is None:
                continue
            tier = self._residency.tiers[pending.order.tier]
            self._judge(tier, error)
            load = pending.load
            if load is None:
                self._stored(tier, pending, error)
            elif self._loaded(load, tier, pending, end):
                over.append(load.chain)
        return over

    def _judge(self, tier: Tier, error: str | None) -> None:
        if error is None:
            tier.failures = 0
            return
        self._cache.metrics.failed_transfers[tier.name] += 1
        tier.failures += 1
        if tier.failures >= MOST_FAILURES and tier.off is None:
            tier.off = error
            self._abandon(tier)

    def _abandon(self, tier: Tier) -> None:
        """Nothing is read from the tier any more: what only it holds is lost."""
        for entry in list(tier.entries.values()):
            if entry.dead or tier.name not in entry.slots:
                continue
            if entry.block == NO_BLOCK and len(entry.slots) == 1:
                self._residency.kill(entry)
            else:
                self._residency.drop_slot(entry, tier.name)
                self._residency.refresh(entry)

    def _loaded(self, load: Load, tier: Tier, pending: Pending, end: TransferEnd) -> bool:
        order, entry = pending.order, pending.entry
        is_over = self._loader.ended(load, tier, end)
        self._residency.end_read(tier, order.slot)
        if entry.dead or entry.block != order.block:
            self._residency.release_orphan(order.block)
            return is_over
        self._residency.transfer(entry, -1)
        if end.error is None:
            self._residency.set_loading(entry, False)
            self._cache.metrics.loaded[tier.name] += 1
        else:
            # Whatever the slot holds is not to be trusted, nor is what builds on it.
            self._residency.kill(entry)
        return is_over

    def _stored(self, tier: Tier, pending: Pending, error: str | None) -> None:
        order, entry = pending.order, pending.entry
        if order.kind is TransferKind.SPILL:
            self._residency.end_read(self._residency.tiers[order.above], order.block)
        elif entry.block == order.block and not entry.dead:
            self._residency.transfer(entry, -1)
        else:
            self._residency.release_orphan(order.block)
        if error is not None or entry.dead or tier.off is not None:
            self._residency.fail_slot(tier, order.slot)
            return
        self._residency.fill_slot(entry, tier, order.slot)
        self._cache.metrics.stored[tier.name] += 1

    # -- time

    def late(self, now: float) -> list[int]:
        """Transfers that have taken too long."""
        return self._book.started_by(now - self._settings.timeout)

    def give_up(self, numbers: Iterable[int]) -> list[RequestChain]:
        """These late transfers will never touch the device any more."""
        ends = []
        for number in numbers:
            pending = self._book.pending.get(number)
            if pending is not None:
                tier = pending.order.tier
                self._cache.metrics.late_transfers[tier] += 1
                ends.append(TransferEnd(number, f"tier {tier!r} took too long"))
        return self.ended(ends)

    def next_alarm(self) -> float | None:
        """When the first transfer is late."""
        first = self._book.first_start()
        return None if first is None else first + self._settings.timeout

    def faults(self) -> dict[str, str]:
        """Tiers that are not used any more, and why."""
        return {f"tier {tier.name}": tier.off for tier in self._tiers if tier.off is not None}

    def stop(self) -> None:
        """Order nothing more; what is under way ends."""
        self._policy = MovePolicy(())

    def check(self) -> None:
        """Compare what is kept for transfers with what is under way. Raises `AssertionError`."""
        busy = self._loader.check()
        for one in self._book.pending.values():
            touches = one.order.kind is not TransferKind.SPILL and not one.entry.dead
            if touches and one.entry.block == one.order.block:
                busy[one.entry.id] = busy.get(one.entry.id, 0) + 1
        for entry in self._cache.finder.entries.values():
            assert entry.busy == busy.get(entry.id, 0), f"{entry} is busy {entry.busy} times"


def _kept_by(entry: Entry) -> int:
    """Idle blocks that cannot be given up while this one is copied: it, and what it builds on."""
    count = 0
    one: Entry | None = entry
    while one is not None and not one.anchors:
        count += 1
        one = one.parent
    return count


def _not_copied(chain: RequestChain, pair: TierPair) -> list[Entry]:
    """Entries of a running request behind the last one that was offered and copied."""
    entries = chain.entries
    while chain.num_offered < len(entries) and not pair.may_copy(entries[chain.num_offered]):
        chain.num_offered += 1
    return [entry for entry in entries[chain.num_offered :] if pair.may_copy(entry)]
