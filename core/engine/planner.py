"""The only writer of seats, blocks and progress. A step is built here, and undone here."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jackfield.core.api import ReleaseCause
from jackfield.core.engine.request import NO_POSITION, NO_SEAT, Request, Status
from jackfield.core.engine.reuse import Reuse, reuse_of
from jackfield.core.engine.slices import Chunk, join_of, slice_of, slices_of
from jackfield.core.engine.steps import BlockUpdate, StepPlan
from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.entry import NO_BLOCK, Entry
from jackfield.core.kv.mover import Mover
from jackfield.core.kv.pool import BlockPool
from jackfield.core.kv.transfers import BlockCopy


class Limits(NamedTuple):
    """What a step may hold at most: positions, sequences; and the longest sequence.

    prompt_alignment: positions; where the step cuts a prompt it had better be at a multiple of it.
    """

    max_tokens: int
    max_seqs: int
    max_model_len: int
    prompt_alignment: int = 1


class Planner:
    """Builds one step after another. Whatever is granted is backed by blocks and a seat.

    `running` maps handles to requests, in order of admission. A request that is preempted while
    the step is built loses its grant; the budget gets it back.
    """

    def __init__(self, cache: BlockCache, mover: Mover, limits: Limits) -> None:
        self.pool: BlockPool = cache.pool
        self.cache = cache
        self.mover = mover
        self.limits = limits
        self.running: dict[int, Request] = {}
        self.number = 0
        self._free_seats = list(range(limits.max_seqs - 1, -1, -1))
        self._leaves: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self._decodes: dict[int, Request] = {}
        self._chunks: dict[int, Chunk] = {}
        self._joins: dict[int, Request] = {}
        self._updates: list[tuple[Request, BlockUpdate]] = []
        self._copies: list[tuple[Request, BlockCopy]] = []
        self.tokens_left = self.limits.max_tokens

    @property
    def seats_left(self) -> int:
        """Seats that nobody holds."""
        return len(self._free_seats)

    @property
    def oldest(self) -> Request | None:
        """The running request that arrived first: it is never a victim.

        Who is admitted for this step does not count yet, unless nobody else runs.
        """
        if not self.running:
            return None
        before = self.running.keys() - self._joins.keys() if self._joins else ()
        return self.running[min(before or self.running)]

    def work(self) -> dict[Request, tuple[int, int]]:
        """Positions that the step being built computes, per request: (known tokens, decodes)."""
        found = dict.fromkeys(self._decodes.values(), (0, 1))
        found.update((chunk.request, (chunk.length, 0)) for chunk in self._chunks.values())
        return found

    @property
    def decodes(self) -> Iterable[Request]:
        """Whose last sampled token the step being built computes."""
        return self._decodes.values()

    @property
    def chunks(self) -> Iterable[Chunk]:
        """Known tokens that the step being built computes."""
        return self._chunks.values()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is granted yet."""
        return not self._decodes and not self._chunks

    def is_granted(self, request: Request) -> bool:
        """Whether the request has positions in this step."""
        return request.handle in self._decodes or request.handle in self._chunks

    def is_new(self, request: Request) -> bool:
        """Whether the request was admitted for this step."""
        return request.handle in self._joins

    def wants_block(self, request: Request) -> bool:
        """Whether the next decode of a running request takes a block."""
        return request.fed == request.computed >= request.room and request.total < request.limit

    def freed_blocks(self, request: Request) -> int:
        """Blocks that would be free if the request lost its seat; others may share some."""
        return sum(self.pool.holders(block) == 1 for block in request.blocks)

    def cached_tokens(self, request: Request) -> int:
        """Tokens that are computed already, and found at an admission now."""
        return reuse_of(request, self.cache).num_tokens

    def admission_blocks(self, request: Request) -> int:
        """Free blocks that an admission takes: for all known tokens and the next one; of the
        blocks that it shares those that nobody holds now."""
        reuse = reuse_of(request, self.cache)
        new = self.pool.blocks_for(request.total + 1) - reuse.num_shared
        return new + self.cache.num_idle(reuse.entries)

    def admit(self, request: Request) -> None:
        """Give a seat, and the blocks of all known tokens; shared ones where possible."""
        assert request.unseen == 0 and request.computed == 0 and not request.blocks
        reuse = reuse_of(request, self.cache)
        blocks = self._hold(request, reuse)
        request.move(Status.RUNNING)
        request.seat = self._free_seats.pop()
        request.blocks = blocks
        request.computed = request.num_cached = reuse.num_tokens
        request.room = len(blocks) * self.pool.block_size
        self.running[request.handle] = request
        self._joins[request.handle] = request
        if blocks:
            self._updates.append((request, BlockUpdate(request.seat, 0, list(blocks))))
        self._extend(request, self.pool.blocks_for(request.total))
        if reuse.source != NO_BLOCK:
            self._copy(request, reuse.source, request.blocks[reuse.num_shared])
        self._count(request, reuse)

    def _copy(self, request: Request, source: int, target: int) -> None:
        # All copies of a step are made at once: none may read what another one writes.
        source = next((copy.source for _, copy in self._copies if copy.target == source), source)
        if source != target:  # it may have been given up, and taken at once
            self._copies.append((request, BlockCopy(source, target)))

    def _hold(self, request: Request, reuse: Reuse) -> list[int]:
        blocks: list[int] = []
        if request.chain is not None:
            blocks = self.cache.acquire(request.chain, reuse.entries)
            self.mover.end_load(request.chain)
            copied = reuse.source
            request.chain.copied = None if copied == NO_BLOCK else self.pool.entries[copied]
        self.pool.share(reuse.blocks)
        return [*blocks, *reuse.blocks]

    def _count(self, request: Request, reuse: Reuse) -> None:
        metrics = self.cache.metrics
        metrics.copied += reuse.source != NO_BLOCK
        if request.num_preemptions:
            metrics.resumed_queried_tokens += request.total
            metrics.resumed_hit_tokens += reuse.num_tokens
        else:
            metrics.queried_tokens += request.total
            metrics.hit_tokens += reuse.num_tokens

    def decode(self, requests: Sequence[Request]) -> None:
        """Plan the positions of the tokens that these seats sampled last.

        Each has room for it, or there is a free block for each that has none.
        """
        for request in requests:
            if request.computed >= request.room:
                self._extend(request, len(request.blocks) + 1)
                self._publish_answer(request)
        self._decodes.update({request.handle: request for request in requests})
        self.tokens_left -= len(requests)

    def grant(self, request: Request, length: int) -> None:
        """Plan the next `length` known tokens. The caller has made sure of blocks and budget."""
        assert request.status is Status.RUNNING and not self.is_granted(request)
        assert 0 < length <= min(request.need, self.tokens_left)
        start = request.computed
        assert start + length <= request.total - request.unseen, "a token is not known yet"
        self._extend(request, self.pool.blocks_for(start + length))
        samples = int(start + length == request.total and request.max_tokens > 0)
        self._chunks[request.handle] = Chunk(request, start, length, samples)
        self.tokens_left -= length

    def _extend(self, request: Request, count: int) -> None:
        have = len(request.blocks)
        if count > have:
            blocks = self.pool.take(count - have, request.blocks[-1] if have else None)
            request.blocks += blocks
            request.room = count * self.pool.block_size
            self._updates.append((request, BlockUpdate(request.seat, have, blocks)))

    def preempt(self, request: Request) -> None:
        """Take seat, blocks and this step's grant away; known tokens will be computed again."""
        self._refund(request)
        mark = request.computed + self.pool.block_size
        request.progress_mark = max(request.progress_mark, mark)
        request.recompute_until = max(request.recompute_until, request.computed)
        request.num_preemptions += 1
        self._vacate(request, ReleaseCause.PREEMPTED)
        request.computed = 0

    def preemptible(self) -> list[Request]:
        """Who may be preempted, by arrival: all but the oldest, and at least one block further
        than when they were preempted before."""
        oldest = self.oldest
        runners = sorted(self.running.values(), key=lambda request: request.handle)
        return [
            one
            for one in runners
            if one is not oldest and (not one.num_preemptions or one.computed >= one.progress_mark)
        ]

    def release(self, request: Request, cause: ReleaseCause) -> None:
        """The request ends: seat and blocks come back, whatever this step granted is dropped."""
        self._refund(request)
        if request.status is Status.RUNNING:
            self._vacate(request, cause)
        elif request.chain is not None:
            self.mover.end_load(request.chain)
            self.cache.close(request.chain)

    def shrink(self) -> int:
        """Halve the largest step, before anything is granted; one token for each seat stays.

        Returns the tokens that a step may have now.
        """
        assert self.is_empty and self.tokens_left == self.limits.max_tokens
        before = self.limits.max_tokens
        tokens = min(before, max(before // 2, self.limits.max_seqs))
        self.limits = self.limits._replace(max_tokens=tokens)
        self.tokens_left = tokens
        return tokens

    def undo(self) -> None:
        """Take all grants of this step back. Who was admitted or preempted stays so."""
        for request in self.work():
            self._refund(request)

    def _refund(self, request: Request) -> None:
        if self._decodes.pop(request.handle, None) is not None:
            self.tokens_left += 1
        chunk = self._chunks.pop(request.handle, None)
        if chunk is not None:
            self.tokens_left += chunk.length

    def _vacate(self, request: Request, cause: ReleaseCause) -> None:
        del self.running[request.handle]
        if self._joins.pop(request.handle, None) is None:
            self._leaves.append(request.seat)
        self._free_seats.append(request.seat)
        self._updates = [entry for entry in self._updates if entry[0] is not request]
        self._copies = [entry for entry in self._copies if entry[0] is not request]
        self._let_go(request, cause)
        request.blocks = []
        request.room = 0
        request.seat = NO_SEAT
        request.fed = NO_POSITION

    def _let_go(self, request: Request, cause: ReleaseCause) -> None:
        chain, last_step = request.chain, self.number - 1
        if chain is None:
            self.pool.release(request.blocks, last_step)
            return
        answer = request.output[chain.num_tokens - len(request.prompt) :]
        written = min(request.computed, request.num_known)
        self.cache.release(chain, request.blocks, written, last_step, cause, answer)

    def commit(self) -> tuple[StepPlan | None, list[Request]]:
        """Seal the step and count its progress. None if nothing was granted.

        Also returns the requests, in the order of the plan's slices. Those with known tokens are
        to be published, best when the step is under way.
        """
        if self.is_empty:
            return None, []
        plan = StepPlan(self.number, num_decodes=len(self._decodes), leaves=self._leaves)
        plan.joins = [join_of(request) for request in self._joins.values()]
        plan.blocks = [update for _, update in self._updates]
        plan.copies = [copy for _, copy in self._copies]
        requests = list(self._decodes.values())
        plan.slices = slices_of(requests)
        for chunk in self._chunks.values():
            plan.slices.append(slice_of(chunk))
            requests.append(chunk.request)
        self.number += 1
        self._leaves = []
        self._begin()
        return plan, requests

    def publish(self, requests: Iterable[Request], step: int) -> None:
        """What that step writes of these requests can be read by those that come after it.

        Once for all whose known tokens it computes, before the next step is planned.
        """
        for request in requests:
            if request.chain is not None and request.status is Status.RUNNING:
                self.cache.publish(request.chain, request.blocks, request.computed, step)

    def _publish_answer(self, request: Request) -> None:
        """Full blocks of the answer can be copied to a tier before they have to be given up."""
        chain = request.chain
        if chain is None or not self.cache.residency.tiers or chain.closed:
            return
        chain.extend(request.output[chain.num_tokens - len(request.prompt) :])
        written = min(request.computed, request.num_known)
        self.cache.publish(chain, request.blocks, written, self.number - 1)

    def settle(self, request: Request, planned: int, tokens: Sequence[int]) -> None:
        """A step was collected: append what it sampled, rewind what was planned but not taken."""
        request.unseen -= planned
        request.output += tokens
        rejected = planned - len(tokens)
        if rejected:
            request.total -= rejected
            if request.status is Status.RUNNING:
                request.computed -= rejected

    def check(self) -> None:
        """Compare seats, blocks and tables of everybody who runs. Raises `AssertionError`."""
        self.cache.settle()
        tables = [request.blocks for request in self.running.values()]
        self.pool.check(tables, self.mover.reserved)
        self.cache.residency.check()
        self.mover.check()
        seats = [request.seat for request in self.running.values()]
        assert len(set(seats)) == len(seats), "two requests on one seat"
        assert not set(seats) & set(self._free_seats), "a seat is free and taken"
        assert len(seats) + len(self._free_seats) == self.limits.max_seqs, "a seat is lost"
        for request in self.running.values():
            room = len(request.blocks) * self.pool.block_size
            assert request.computed <= room == request.room, f"{request.id} has too few blocks"
            self._check_chain(request)

    def _check_chain(self, request: Request) -> None:
        """Whoever holds a cached block holds what it builds on."""
        parent: Entry | None = None
        for block in request.blocks:
            entry = self.pool.entries[block]
            if entry is None:
                break
            assert entry.parent is parent, f"{request.id} holds {entry}, but not its parent"
            parent = entry
        depth = -1 if parent is None else parent.depth
        rest = request.blocks[depth + 1 :]
        assert not any(self.pool.entries[block] for block in rest), f"{request.id} has a gap"
        if request.chain is not None:
            alive = [entry.block for entry in request.chain.entries if not entry.dead]
            assert alive == request.blocks[: len(alive)], f"{request.id} holds something else"
