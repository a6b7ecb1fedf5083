"""The cache of blocks: what requests publish, find, hold and let go."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jackfield.core.api import Keep, ReleaseCause, Released, RequestView
from jackfield.core.kv.backlog import Backlog, Departure, Publication
from jackfield.core.kv.beginnings import Beginnings
from jackfield.core.kv.cache_metrics import CacheMetrics
from jackfield.core.kv.entry import NO_BLOCK, Entry
from jackfield.core.kv.finder import Finder
from jackfield.core.kv.keeping import Keeping
from jackfield.core.kv.namespaces import Namespaces
from jackfield.core.kv.pool import BlockPool
from jackfield.core.kv.request_chain import RequestChain
from jackfield.core.kv.residency import Residency
from jackfield.core.kv.retention import NO_OPINION, Retention, fold


class CacheParts(NamedTuple):
    """What a cache is made of. most_pinned: entries."""

    finder: Finder
    residency: Residency
    namespaces: Namespaces
    retention: Retention
    most_pinned: int


class BlockCache:
    """Content on top of the pool. The planner is its only caller, beside the tiers' mover.

    A block of a running request is published when the step that fills it is planned, so that
    later steps read it; a step that fails takes back what it was to write. leased: chains of
    preempted requests that wait to go on. defers: what is published, and what requests leave behind
    that have their answer, is put in order at `tidy`, or before anybody could tell; until then
    blocks that were left behind count as free.
    """

    def __init__(self, parts: CacheParts) -> None:
        self.finder = parts.finder
        self.residency = parts.residency
        self.pool: BlockPool = parts.residency.pool
        self.metrics: CacheMetrics = parts.residency.metrics
        self._namespaces = parts.namespaces
        self._retention = parts.retention
        self._keeping = Keeping(parts.finder, parts.residency, parts.most_pinned)
        self._beginnings = Beginnings()
        self._backlog = Backlog(self)
        self.pool.settle = self.settle
        self.leased: dict[RequestChain, None] = {}
        self.defers = False

    @property
    def shares(self) -> bool:
        """Whether requests find what others have computed."""
        return self.finder.shares

    @property
    def remembers(self) -> bool:
        """Whether anything is kept of a request that holds no block."""
        return self.finder.shares or bool(self.residency.tiers)

    def open(self, request: RequestView, tokens: bytes, keys: bytes) -> RequestChain | None:
        """The chain of a new request; None if nothing is remembered. tokens, keys: see there."""
        if not self.remembers:
            return None
        spaces = (self._namespaces.of if self.shares else self._namespaces.alone)(request)
        hints = request.context.cache
        return RequestChain(request, hints, spaces, self.pool.block_size, tokens, keys)

    # -- finding

    def find(self, chain: RequestChain) -> list[Entry]:
        """Entries that hold the chain's content, wherever they are; without a gap."""
        if self._backlog.may_concern(chain):
            self.settle()
        if chain.epoch == self.finder.epoch:
            return chain.found
        found = chain.found
        while found and found[-1].dead:
            found.pop()
        if not found and chain.num_blocks:
            found = chain.found = self._beginnings.like(chain)
        parent = found[-1] if found else None
        found += self.finder.match(chain, len(found), parent)
        chain.epoch = self.finder.epoch
        self._beginnings.found(chain)
        return found

    def on_device(self, chain: RequestChain) -> int:
        """How many of the found entries, from the start on, are on the device."""
        found = self.find(chain)
        if not found:
            return 0
        # Whoever is on the device builds on what is, so that bisection finds the border.
        count = bisect_left(found, True, key=lambda entry: entry.block == NO_BLOCK)
        if self.residency.num_loading:
            return next((i for i in range(count) if found[i].loading), count)
        return count

    def num_idle(self, entries: Sequence[Entry]) -> int:
        """How many entries of one chain nobody holds; these are its last ones."""
        return len(entries) - bisect_left(entries, True, key=lambda entry: not entry.anchors)

    # -- holding

    def acquire(self, chain: RequestChain, entries: Sequence[Entry]) -> list[int]:
        """The request holds the blocks of these entries, the first ones of its chain."""
        assert not chain.entries
        pool, residency = self.pool, self.residency
        blocks = [entry.block for entry in entries]
        # Whoever holds one holds what it builds on, so that those nobody holds come last.
        held = bisect_left(blocks, True, key=lambda block: not pool.holders(block))
        for entry in entries[held:]:
            residency.anchor(entry)
        pool.share(blocks)
        if entries:
            residency.order.touch(entries[::-1], residency.now)
            self._touch_tiers(entries)
        chain.entries = list(entries)
        chain.closed = False
        chain.num_offered = 0
        self.end_lease(chain)
        return blocks

    def _touch_tiers(self, entries: Sequence[Entry]) -> None:
        for name, tier in self.residency.tiers.items():
            there = [entry for entry in reversed(entries) if name in entry.slots]
            if there:
                tier.order.touch(there, self.residency.now)

    def publish(
        self, chain: RequestChain, blocks: Sequence[int], num_tokens: int, step: int
    ) -> None:
        """The first `num_tokens` positions of a running request are written by that step."""
        if chain.closed:
            return
        publication = Publication(chain, blocks, num_tokens, step)
        if self.defers and self._is_plain(chain):
            self._backlog.publish(publication)
        else:
            self.settle()
            self.enter(publication)

    def enter(self, publication: Publication) -> None:
        """For the backlog."""
        self._publish(*publication, last=False)

    def _publish(
        self, chain: RequestChain, blocks: Sequence[int], num_tokens: int, step: int, last: bool
    ) -> None:
        """Make entries of full blocks. last: the request has let go of them."""
        end = min(num_tokens // chain.block_size, chain.num_blocks)
        index = len(chain.entries)
        if index >= end or chain.tainted:
            return
        parent = chain.entries[-1] if chain.entries else None
        if parent is not None and parent.dead:
            return
        known = self.finder.match(chain, index, parent)[: end - index]
        attached: list[Entry] = []
        created: list[Entry] = []
        is_own = True
        for entry in [*known, *[None] * (end - index - len(known))]:
            block = blocks[index]
            there = self.pool.entries[block]
            if there is not None:
                # Another answer to the prompt holds the block too, and has published it.
                if there.parent is not parent or there.tokens != chain.tokens(index):
                    break
                parent = there
            elif entry is None or entry.block == NO_BLOCK:
                # Whoever holds a cached block holds what it builds on: not so if others hold this
                # one after blocks of their own.
                if not (is_own or self.pool.holders(block) == (not last)):
                    break
                if entry is None:
                    entry = self._create(chain, index, parent)
                    created.append(entry)
                parent = entry
                parent.step = step
                self._attach(parent, block, attached)
            elif last:
                parent, is_own = entry, False
            else:
                chain.closed = True
                break
            chain.entries.append(parent)
            index += 1
        if created:
            self.finder.add(created)
            self.metrics.published += len(created)
        if attached:
            self.residency.known(attached)

    def _create(self, chain: RequestChain, index: int, parent: Entry | None) -> Entry:
        space, key, tokens = chain.space(index), chain.view.key(index), chain.tokens(index)
        return Entry(self.finder.number(), parent, space, key, tokens)

    def _attach(self, entry: Entry, block: int, attached: list[Entry]) -> None:
        if self.pool.holders(block):
            self.residency.attach_held(entry, block)
        else:
            self.residency.attach(entry, block)
        attached.append(entry)

    # -- letting go

    def release(
        self,
        chain: RequestChain,
        blocks: Sequence[int],
        num_tokens: int,
        last_step: int,
        cause: ReleaseCause,
        answer: Sequence[int] = (),
    ) -> None:
        """The request lets go of its blocks, of which `num_tokens` positions are written.

        answer: known tokens that its chain does not know yet.
        """
        keep = self._keep(chain, num_tokens, cause)
        is_quiet = cause is ReleaseCause.FINISHED and keep == NO_OPINION
        waits = self.defers and is_quiet and self._is_plain(chain)
        if waits:
            self._backlog.enter()
        else:
            self.settle()
        left = self.pool.leave(blocks, last_step)
        departure = Departure(chain, blocks, num_tokens, last_step, answer, left)
        if waits:
            self.pool.num_left += departure.num_left
            self._backlog.leave(departure)
        else:
            self._file(departure, keep, cause)

    def _is_plain(self, chain: RequestChain) -> bool:
        """Whether it makes no difference when its blocks are put in order."""
        return self.shares and not self.residency.tiers and bool(chain.head)

    def settle(self) -> None:
        """Put in order what was put off."""
        self._backlog.clear()

    def tidy(self) -> None:
        """The same with some of it, which takes no longer than a step."""
        self._backlog.shorten()

    def file(self, departure: Departure) -> None:
        """For the backlog."""
        self.pool.num_left -= departure.num_left
        self._file(departure, NO_OPINION, ReleaseCause.FINISHED)

    def _file(self, departure: Departure, keep: Keep, cause: ReleaseCause) -> None:
        """What the request has written is cached, and its other blocks are free."""
        chain, blocks, num_tokens, last_step, answer, left = departure
        chain.extend(answer)
        if not keep.drop or cause is ReleaseCause.PREEMPTED:
            self._publish(chain, blocks, num_tokens, last_step, last=True)
        entries, chain.entries = chain.entries, []
        alive = [entry for entry in entries if not entry.dead]
        self._keeping.mark(alive, keep)
        if cause is ReleaseCause.PREEMPTED:
            self._lease(chain, alive)
        for entry in left.entries:
            self.residency.unanchor(entry)
        known = self.pool.entries
        self.pool.give([block for block in left.blocks if known[block] is None])
        if alive:
            self.residency.order.touch(alive[::-1], self.residency.now)
        if cause is not ReleaseCause.PREEMPTED and (keep.drop or not self.shares):
            self._drop(alive)

    def _keep(self, chain: RequestChain, num_tokens: int, cause: ReleaseCause) -> Keep:
        """What plugins say, and what the request itself has asked for, once it has its answer."""
        hints = chain.hints
        if not (self._retention.asks or hints.pin or hints.ttl is not None):
            return NO_OPINION
        released = Released(chain.owner, num_tokens // chain.block_size, cause)
        asked = self._retention.ask(released)
        if cause is not ReleaseCause.FINISHED:
            return asked
        return fold(asked, Keep(pin=hints.pin, ttl=hints.ttl))

    def _drop(self, entries: Sequence[Entry]) -> None:
        """Entries of one chain go, from its end up to what somebody else needs."""
        for entry in reversed(entries):
            if entry.dead:
                continue
            if entry.is_needed:
                return
            self.residency.kill(entry)

    def _lease(self, chain: RequestChain, entries: list[Entry]) -> None:
        chain.found = list(entries)
        chain.leased = entries
        chain.epoch = -1
        chain.recomputes = False
        self.leased[chain] = None
        for entry in entries:
            entry.leases += 1
            self.residency.refresh(entry)

    def end_lease(self, chain: RequestChain) -> None:
        """The request holds what it waited for, or does not want it any more."""
        if chain not in self.leased:
            return
        del self.leased[chain]
        for entry in chain.leased:
            entry.leases -= 1
            if not entry.dead:
                self.residency.refresh(entry)
        chain.leased = []

    def close(self, chain: RequestChain) -> None:
        """A request ends that holds no block."""
        leased = chain.leased
        self.end_lease(chain)
        if not self.shares:
            self._drop(leased)
        chain.found = []

    # -- time, faults and resets

    @property
    def now(self) -> float:
        """The time of the step that is being planned."""
        return self.residency.now

    def begin(self, now: float) -> None:
        """A step is about to be planned: what has expired goes, unless somebody needs it."""
        self.residency.now = now
        if self._keeping.is_due:
            self.settle()
            self._keeping.expire()

    def invalidate(self, step: int) -> set[Entry]:
        """That step has failed: what it or a later one was to write is unknown, and goes.

        Returns what has gone.
        """
        self.settle()
        found = [one for one in self.finder.entries.values() if one.step >= step]
        self._kill(found)
        return set(found)

    def reset(self) -> bool:
        """Forget everything; False, and nothing happens, if any of it is in use."""
        self.settle()
        entries = list(self.finder.entries.values())
        if any(entry.anchors or entry.leases for entry in entries):
            return False
        with self.residency.order.leaving():
            self._kill(entries)
        self._keeping.clear()
        self._beginnings.clear()
        self.finder.reset()
        return True

    def _kill(self, entries: Iterable[Entry]) -> None:
        """All of them; one takes with it what builds on it."""
        for entry in entries:
            if not entry.dead:
                self.residency.kill(entry)
