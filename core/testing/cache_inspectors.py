"""What is looked at after each step of an engine with a cache: one law each, by its number.

M1, M2, M9 and M10 are in `check` of the engine itself; contents (M5, M7, M8) are compared by
`CacheWatch`; the fake executor and its tiers refuse orders that break M4, M7 and M9. Here is what
none of them sees.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request, Status
from jackfield.core.kv.build import CacheSettings
from jackfield.core.kv.transfers import TransferKind
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.inspectors import Inspector

if TYPE_CHECKING:
    from jackfield.core.testing.cache_watch import CacheWatch
    from jackfield.core.testing.watch import Watch

Zone = Callable[[Request, int], Hashable]
"""A request and the number of a block -> what it must have in common with others to share it."""


def zone_of(settings: CacheSettings, block_size: int) -> Zone:
    """What the rules of isolation say, worked out without the core's help."""

    def zone(request: Request, index: int) -> Hashable:
        hints, tenant = request.context.cache, request.context.tenant
        wanted = hints.shared_prefix_tokens
        tokens = settings.shared_prefix_tokens if wanted is None else wanted
        own = (tenant if settings.isolates else None, hints.salt)
        if own != (None, "") and (index + 1) * block_size <= tokens:
            return "shared"
        return own

    return zone


def may_see(zone: Zone) -> Callable[[Request, Request, int], bool]:
    """Whether two requests may hold the same block, which is the n-th of both."""

    def may_share(first: Request, second: Request, index: int) -> bool:
        return all(zone(first, place) == zone(second, place) for place in range(index + 1))

    return may_share


class NoPeeking(Inspector):
    """M5 and M6: what a request finds was computed before by somebody who shares with it.

    It remembers all that was ever computed, and by whom; a hit on anything else is one that never
    was, of another tenant, or of other tokens. A hit leaves at least one position to compute.
    """

    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self._unnoted: dict[Request, tuple[int, int]] = {}
        self._known: set[Hashable] = set()

    def after(self, watch: "Watch") -> None:
        requests = {one.request.handle: one.request for one in watch.answers.values()}
        size = watch.engine.lifecycle.planner.pool.block_size
        for join in watch.plan.joins if watch.plan is not None else ():
            self._check(requests[join.handle], size)
        for part in watch.plan.slices if watch.plan is not None else ():
            request = requests[part.handle]
            start, _ = self._unnoted.get(request, (part.start, 0))
            self._unnoted[request] = (min(start, part.start), part.start + part.length)
        for request, (start, end) in list(self._unnoted.items()):
            self._note(request, start, end, size)

    def reset(self, watch: "Watch") -> None:
        """Everything was forgotten, but for what running requests hold and have not published."""
        self._known.clear()
        planner = watch.engine.lifecycle.planner
        for request in planner.running.values():
            self._unnoted[request] = (0, request.computed)
            self._note(request, 0, request.computed, planner.pool.block_size)

    def _check(self, request: Request, size: int) -> None:
        found, tokens = request.num_cached, [*request.prompt, *request.output]
        assert found < max(request.total, 1), f"M6: {request.id} has nothing left to compute"
        for end in range(1, found + 1):
            assert self._name(request, tokens[:end], size) in self._known, (
                f"M5: {request.id} of {request.context.tenant} found {found} tokens; nobody who "
                f"shares with it has computed {tokens[:end]}"
            )

    def _note(self, request: Request, start: int, end: int, size: int) -> None:
        """Positions up to `end` are computed; some of their tokens may not be known yet."""
        tokens = [*request.prompt, *request.output]
        known = min(end, len(tokens))
        for stop in range(start + 1, known + 1):
            self._known.add(self._name(request, tokens[:stop], size))
        if known == end or request.status is Status.FINISHED:
            del self._unnoted[request]
        else:
            self._unnoted[request] = (max(start, known), end)

    def _name(self, request: Request, tokens: Sequence[int], size: int) -> Hashable:
        blocks = -(-len(tokens) // size)
        return (*(self._zone(request, index) for index in range(blocks)), *tokens)


class KeepsWhatIsUsed(Inspector):
    """M3: whoever keeps its seat keeps its blocks, and a transfer what it touches."""

    def __init__(self, executor: FakeExecutor) -> None:
        self._executor = executor
        self._before: dict[Request, tuple[int, list[int]]] = {}

    def before(self, watch: "Watch") -> None:
        running = watch.engine.lifecycle.planner.running.values()
        self._before = {one: (one.num_preemptions, list(one.blocks)) for one in running}

    def after(self, watch: "Watch") -> None:
        planner = watch.engine.lifecycle.planner
        for request in planner.running.values():
            preemptions, blocks = self._before.get(request, (request.num_preemptions, []))
            if preemptions == request.num_preemptions:
                assert request.blocks[: len(blocks)] == blocks, (
                    f"M3: {request.id} runs and has lost {blocks}"
                )
        for one in self._executor.tiers.under_way:
            if one.kind in (TransferKind.LOAD, TransferKind.STORE):
                assert not planner.pool.is_empty(one.block), (
                    f"M3: block {one.block} is free while transfer {one.number} touches it"
                )


class WritesOnlyItsOwn(Inspector):
    """M4: nobody writes a block that others hold, or that was published before this step."""

    def after(self, watch: "Watch") -> None:
        if watch.plan is None:
            return
        planner = watch.engine.lifecycle.planner
        size = planner.pool.block_size
        for part in watch.plan.slices:
            request = planner.running.get(part.handle)
            if request is None:
                continue
            end = -(-(part.start + part.length) // size)
            for block in request.blocks[part.start // size : end]:
                entry, holders = planner.pool.entries[block], planner.pool.holders(block)
                is_new = entry is None or entry.step >= watch.plan.number
                assert is_new, f"M4: {request.id} writes block {block}, which is published"
                # Further answers to the prompt get their blocks when its last token is planned.
                assert holders == 1 or request.group is not None, (
                    f"M4: {request.id} writes block {block}, which {holders} requests hold"
                )


class ReadsWhatIsThere(Inspector):
    """M7: nobody who runs holds a block that is being filled."""

    def after(self, watch: "Watch") -> None:
        planner = watch.engine.lifecycle.planner
        for request in planner.running.values():
            for block in request.blocks:
                entry = planner.pool.entries[block]
                loading = entry is not None and entry.loading
                assert not loading, f"M7: {request.id} holds block {block}, which is being filled"


class NobodyStays(Inspector):
    """M11: who has ended leaves nothing behind that holds a block or a lease."""

    def after(self, watch: "Watch") -> None:
        alive = {id(request.chain) for request in watch.engine.requests()}
        for chain in watch.engine.lifecycle.planner.cache.leased:
            assert id(chain) in alive, f"M11: a lease is left of request {chain.owner.handle}"

    def end(self, watch: "Watch") -> None:
        cache, pool = watch.engine.lifecycle.planner.cache, watch.engine.lifecycle.planner.pool
        assert pool.num_idle + pool.num_empty == pool.num_blocks, "M11: blocks are lost"
        for entry in cache.finder.entries.values():
            assert not entry.anchors and not entry.leases, f"M11: {entry} is held by nobody"


class KeepsToTheClock(Inspector):
    """M12: pins have a cap, and what has expired is gone after the next step, or in use."""

    def __init__(self, settings: CacheSettings) -> None:
        self._share = settings.pinned_share
        self._expiries: dict[int, float] = {}

    def before(self, watch: "Watch") -> None:
        entries = watch.engine.lifecycle.planner.cache.finder.entries
        self._expiries = {
            number: one.expires for number, one in entries.items() if one.expires is not None
        }

    def after(self, watch: "Watch") -> None:
        cache = watch.engine.lifecycle.planner.cache
        most = int(self._share * cache.pool.num_blocks)
        entries = cache.finder.entries
        pinned = sum(entry.pinned for entry in entries.values())
        assert pinned <= most, f"M12: {pinned} blocks are pinned, {most} may be"
        for number, expires in self._expiries.items():
            entry = entries.get(number)
            is_late = entry is not None and entry.expires == expires < cache.now
            assert not is_late, f"M12: {entry} has expired at {expires}, and it is {cache.now}"


class MovesWithinLimits(Inspector):
    """E9: what is copied down is complete, stays with who holds it, and is not over the budget."""

    def __init__(self, settings: CacheSettings, executor: FakeExecutor) -> None:
        self._executor = executor
        self._most = max(settings.transfer_budget // settings.block_bytes, 1)
        self._last = 0

    def after(self, watch: "Watch") -> None:
        new = [one for one in self._executor.tiers.under_way if one.number > self._last]
        moves = [one for one in new if one.kind is not TransferKind.LOAD]
        entries = watch.engine.lifecycle.planner.pool.entries
        for one in moves:
            entry = entries[one.block] if one.kind is TransferKind.STORE else None
            is_whole = one.kind is TransferKind.SPILL or (entry is not None and entry.on_device)
            assert is_whole, f"E9: block {one.block} is moved, and holds nothing that is cached"
        for tier, count in Counter(one.tier for one in moves).items():
            assert count <= self._most, f"E9: {count} blocks go to {tier}, {self._most} may"
        self._last = max((one.number for one in new), default=self._last)


class WaitsNotForEver(Inspector):
    """E8: nobody is parked for a tier longer than two transfers may take, one after the other."""

    def __init__(self, settings: CacheSettings) -> None:
        self._bound = 2 * settings.transfer_timeout

    def after(self, watch: "Watch") -> None:
        gates = watch.engine.lifecycle.gates
        for request in gates.requests():
            gate, decision = gates.why(request), request.decision
            if gate is not None and decision is not None and decision.code is Code.AWAITS_LOAD:
                bound = decision.time + self._bound
                assert gate.until <= bound, f"E8: {request.id} waits for a tier until {gate.until}"
                now = watch.engine.lifecycle.planner.cache.now
                assert now < gate.until, f"E8: {request.id} waits for a tier at {now}"


def inspect(settings: CacheSettings, watch: "CacheWatch") -> None:
    """Have all of these look at each step of an engine with these settings."""
    executor = watch.executor
    zone = zone_of(settings, watch.engine.lifecycle.planner.pool.block_size)
    watch.inspectors += [
        KeepsWhatIsUsed(executor), WritesOnlyItsOwn(), NoPeeking(zone), ReadsWhatIsThere(),
        NobodyStays(), KeepsToTheClock(settings), MovesWithinLimits(settings, executor),
        WaitsNotForEver(settings),
    ]  # fmt: skip
