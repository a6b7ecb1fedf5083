"""Where entries have their copies, and which of these can be given up."""

from collections.abc import Mapping, Sequence

from jackfield.core.kv.cache_metrics import CacheMetrics
from jackfield.core.kv.entry import NO_BLOCK, Entry
from jackfield.core.kv.finder import Finder
from jackfield.core.kv.pool import BlockPool
from jackfield.core.kv.tier import EvictionOrder, Tier

AT_ONCE = 512
"""Of a pool of so many blocks one is given up beyond need, so that a large one asks less often."""


class Residency:
    """The only writer of an entry's copies.

    An entry lives as long as it has a copy, and longer than all that build on it; on the device
    too, whoever builds on it leaves first. `dropped` are slots whose tiers have to be told.
    """

    def __init__(
        self,
        pool: BlockPool,
        finder: Finder,
        order: EvictionOrder,
        tiers: Mapping[str, Tier],
        metrics: CacheMetrics,
    ) -> None:
        self.pool = pool
        self.finder = finder
        self.order = order
        self.tiers = tiers
        self.metrics = metrics
        self.now = 0.0
        self.num_pinned = 0
        self.num_copied = 0
        self.num_loading = 0
        self.dropped: list[tuple[str, int]] = []
        self.orphans: set[int] = set()
        self._unread: dict[str, set[int]] = {name: set() for name in tiers}
        pool.reclaim = self.reclaim

    # -- copies on the device

    def attach(self, entry: Entry, block: int) -> None:
        """The block of the pool holds, or is to be filled with, what the entry stands for."""
        assert entry.block == NO_BLOCK and self.pool.entries[block] is None
        entry.block = block
        self.pool.entries[block] = entry
        self.pool.num_idle += 1
        parent = entry.parent
        if parent is not None:
            parent.device_children += 1
            self.refresh(parent)

    def attach_held(self, entry: Entry, block: int) -> None:
        """The same of a block that somebody holds, and with it what the entry builds on."""
        assert entry.block == NO_BLOCK and self.pool.entries[block] is None
        entry.block = block
        self.pool.entries[block] = entry
        entry.anchors += 1
        parent = entry.parent
        if parent is not None:
            parent.device_children += 1
            self.anchor(parent)
            if self.tiers:
                self.refresh(parent)

    def known(self, entries: Sequence[Entry]) -> None:
        """These entries have just been attached: the evictor hears of them."""
        self.order.insert(entries, self.now)
        for entry in entries:
            if self.tiers or not entry.anchors:
                self.refresh(entry)

    def anchor(self, entry: Entry | None) -> None:
        """One more reason to keep the entry, and with it all that it builds on."""
        while entry is not None:
            entry.anchors += 1
            if entry.anchors > 1:
                return
            self.pool.num_idle -= 1
            self.refresh(entry)
            entry = entry.parent

    def unanchor(self, entry: Entry | None) -> None:
        """One reason less."""
        while entry is not None:
            entry.anchors -= 1
            assert entry.anchors >= 0, f"{entry} is kept by less than nothing"
            if entry.anchors:
                return
            self.pool.num_idle += 1
            self.refresh(entry)
            entry = entry.parent

    def hold(self, entry: Entry, change: int) -> None:
        """A transfer or a load begins (1) or ends (-1) to count on the device's copy."""
        before = entry.busy
        entry.busy += change
        if before == 0:
            self.anchor(entry)
        elif entry.busy == 0:
            self.unanchor(entry)

    def set_loading(self, entry: Entry, loading: bool) -> None:
        """Whether the device's copy is still being filled."""
        self.num_loading += loading - entry.loading
        entry.loading = loading

    def transfer(self, entry: Entry, change: int) -> None:
        """A transfer that touches the device's copy begins (1) or ends (-1)."""
        entry.transfers += change
        self.hold(entry, change)

    def detach(self, entry: Entry) -> None:
        """The device's copy goes; whoever holds the block keeps it as a block without content."""
        freed: list[int] = []
        self._detach(entry, freed)
        self.pool.give(freed)

    def _detach(self, entry: Entry, freed: list[int]) -> None:
        """freed: gets the block if the pool is to have it."""
        block = entry.block
        if entry.anchors:
            self.unanchor(entry.parent)
        else:
            self.pool.num_idle -= 1
        self.order.remove(entry)
        entry.is_evictable = False
        self.set_loading(entry, False)
        entry.block, entry.anchors = NO_BLOCK, 0
        self.pool.entries[block] = None
        if entry.transfers:
            self.orphans.add(block)
        elif not self.pool.holders(block):
            freed.append(block)
        if entry.parent is not None:
            entry.parent.device_children -= 1
            self.refresh(entry.parent)

    def release_orphan(self, block: int) -> None:
        """Nothing touches the block any more that lost its entry while something did."""
        self.orphans.discard(block)
        if not self.pool.holders(block):
            self.pool.give((block,))

    def reclaim(self, count: int) -> None:
        """Give up so many idle blocks, or some more: those first that cost the least to lose."""
        freed, wanted = 0, min(max(count, self.pool.num_blocks // AT_ONCE), self.pool.num_idle)
        while freed < count:
            victims = self._cheapest(wanted - freed)
            assert victims, f"{count - freed} idle blocks are missing"
            with self.order.leaving():
                while victims:
                    for entry in victims:
                        self.evict(entry)
                    freed += len(victims)
                    victims = self._without_choice(count - freed)

    def _without_choice(self, missing: int) -> list[Entry]:
        """All evictable entries, if that many are missing anyway: there is nothing to ask."""
        return self.order.all() if len(self.order) <= missing else []

    def _cheapest(self, count: int) -> list[Entry]:
        """Leased entries without another copy go only if nothing else does."""
        wanted = count
        while True:
            offered = self.order.victims(wanted, self.now)
            cheap = [entry for entry in offered if entry.slots or not entry.leases]
            if len(cheap) >= count:
                return cheap[:count]
            if len(offered) < wanted or wanted >= len(self.order):
                return cheap or offered[:count]
            wanted *= 4

    def evict(self, entry: Entry) -> None:
        """The device's copy of an evictable entry goes for want of room."""
        if entry.slots:
            self.detach(entry)
            self.refresh(entry)
            return
        self.metrics.evicted += 1
        self.kill(entry, lost=True)

    # -- copies in tiers

    def fill_slot(self, entry: Entry, tier: Tier, slot: int) -> None:
        """The tier holds the entry's content."""
        tier.filling.discard(slot)
        tier.entries[slot] = entry
        entry.slots[tier.name] = slot
        tier.order.insert((entry,), self.now)
        self.refresh(entry)

    def drop_slot(self, entry: Entry, name: str) -> None:
        """The tier's copy goes, at once or when nobody reads it any more."""
        tier = self.tiers[name]
        slot = entry.slots.pop(name)
        del tier.entries[slot]
        tier.order.remove(entry)
        if slot in tier.readers:
            self._unread[name].add(slot)
            tier.filling.add(slot)
        else:
            self._free_slot(tier, slot)

    def _free_slot(self, tier: Tier, slot: int) -> None:
        tier.give_slot(slot)
        self.dropped.append((tier.name, slot))

    def fail_slot(self, tier: Tier, slot: int) -> None:
        """A slot that was to be filled was not."""
        self._free_slot(tier, slot)

    def end_read(self, tier: Tier, slot: int) -> None:
        """A transfer does not read the slot any more."""
        tier.read(slot, -1)
        if slot not in tier.readers and slot in self._unread[tier.name]:
            self._unread[tier.name].discard(slot)
            self._free_slot(tier, slot)
        elif slot in tier.entries:
            self.refresh(tier.entries[slot])

    def make_slot(self, tier: Tier) -> int | None:
        """A slot to fill, for which an evictable copy may go; None = there is none."""
        if not tier.num_free:
            victims = tier.order.victims(1, self.now)
            if not victims:
                return None
            self._give_up(victims[0], tier.name)
        return tier.take_slot() if tier.num_free else None

    def _give_up(self, entry: Entry, name: str) -> None:
        if entry.block == NO_BLOCK and len(entry.slots) == 1:
            self.metrics.evicted += 1
            self.kill(entry, lost=True)
            return
        self.drop_slot(entry, name)
        self.refresh(entry)

    # -- entries

    def kill(self, entry: Entry, *, lost: bool = False) -> None:
        """The entry is gone with all its copies, and so is all that builds on it."""
        gone = entry.family()[::-1]
        freed: list[int] = []
        for one in gone:
            if one.block != NO_BLOCK:
                self._detach(one, freed)
            for name in list(one.slots):
                self.drop_slot(one, name)
            one.dead = True
            self.num_pinned -= one.pinned
            self._count_copied(one, False)
            one.unlink()
        self.pool.give(freed)
        self.finder.remove(gone)
        if not lost:
            self.metrics.dropped += len(gone)
        if entry.parent is not None and not entry.parent.dead:
            self.refresh(entry.parent)

    def refresh(self, entry: Entry) -> None:
        """Tell evictors what has become evictable, or is so no more."""
        idle = entry.block != NO_BLOCK and not entry.anchors
        evictable = idle and not entry.device_children
        if evictable is not entry.is_evictable:
            entry.is_evictable = evictable
            (self.order.allow if evictable else self.order.forbid)(entry)
        if self.tiers:
            self._count_copied(entry, entry.block != NO_BLOCK and bool(entry.slots))
            if entry.slots:
                self._refresh_slots(entry)

    def _count_copied(self, entry: Entry, is_copied: bool) -> None:
        self.num_copied += is_copied - entry.is_copied
        entry.is_copied = is_copied

    def _refresh_slots(self, entry: Entry) -> None:
        copies = len(entry.slots) + (entry.block != NO_BLOCK)
        needed = copies == 1 and (entry.first_child is not None or entry.leases > 0)
        for name, slot in entry.slots.items():
            tier = self.tiers[name]
            may_go = not needed and slot not in tier.readers
            if may_go is not tier.order.allows(entry):
                (tier.order.allow if may_go else tier.order.forbid)(entry)

    def check(self) -> None:
        """Compare counts and evictors with what the entries say. Raises `AssertionError`."""
        entries = list(self.finder.entries.values())
        idle = [one for one in entries if one.is_idle]
        assert len(idle) == self.pool.num_idle, f"{len(idle)} idle, counted {self.pool.num_idle}"
        self.order.check({one.id for one in idle if not one.device_children})
        for entry in entries:
            self._check_entry(entry)
        for block, found in enumerate(self.pool.entries):
            assert found is None or found.block == block, f"block {block} has {found}"
        for tier in self.tiers.values():
            tier.check()
        assert self.num_loading == sum(one.loading for one in entries)
        assert self.num_pinned == sum(one.pinned for one in entries)
        copied = [one for one in entries if one.block != NO_BLOCK and one.slots]
        assert self.num_copied == len(copied), "copies below are counted wrong"

    def _check_entry(self, entry: Entry) -> None:
        assert not entry.dead and (entry.block != NO_BLOCK or entry.slots), f"{entry} has no copy"
        parent = entry.parent
        if parent is not None:
            assert not parent.dead, f"{entry} has lost what it builds on"
            alone = entry.block != NO_BLOCK and parent.block == NO_BLOCK
            assert not alone, f"{entry} is on the device without what it builds on"
        on_device = [one for one in entry.children() if one.block != NO_BLOCK]
        assert entry.device_children == len(on_device), f"{entry} counts its children wrong"
        if entry.block != NO_BLOCK:
            kept = sum(one.anchors > 0 for one in on_device)
            kept += (self.pool.holders(entry.block) > 0) + (entry.busy > 0)
            assert entry.anchors == kept, f"{entry} has {entry.anchors} anchors, not {kept}"
