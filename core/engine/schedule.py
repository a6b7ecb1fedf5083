"""One step's plan: decodes first, then prompts, then admissions from the tree."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from jackfield.core.api import LoadView, PrefillNeed, QuotaView, Shape, StepView, VictimView, Work
from jackfield.core.engine.advice import NO_OPINION, Advice
from jackfield.core.engine.decisions import CORE
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.request import Request
from jackfield.core.engine.tree import Leaf, Node, WaitingTree
from jackfield.core.engine.valve import Valve

UNLIMITED = 2**31


class Caps(NamedTuple):
    """A folded `Shape` with the core's own limits filled in."""

    tokens: int
    prefill_tokens: int
    seqs: int
    new_seqs: int
    partial_prefills: int
    reserve_blocks: int

    @staticmethod
    def of(shape: Shape, max_tokens: int, max_seqs: int) -> "Caps":
        """No opinion means the core's limit."""
        return Caps(
            tokens=_at_most(shape.tokens, max_tokens),
            prefill_tokens=_at_most(shape.prefill_tokens, max_tokens),
            seqs=_at_most(shape.seqs, max_seqs),
            new_seqs=_at_most(shape.new_seqs, max_seqs),
            partial_prefills=_at_most(shape.partial_prefills, UNLIMITED),
            reserve_blocks=shape.reserve_blocks or 0,
        )


class Preemption(NamedTuple):
    """Who lost its seat, and who chose it."""

    request: Request
    plugin: str


@dataclass(slots=True)
class Outcome:
    """What planning did beside granting: for the log, the events and the queues.

    waits: why the head of the queue was not admitted; None when nobody waits on. recomputed:
    granted positions that were computed before.
    """

    admitted: list[tuple[Request, str]] = field(default_factory=list)
    preempted: list[Preemption] = field(default_factory=list)
    waits: str | None = None
    recomputed: int = 0
    stalled: bool = False


class Scheduler:
    """Fills the planner once per step. Orders come from the tree, limits from the advice."""

    def __init__(
        self,
        planner: Planner,
        tree: WaitingTree,
        valve: Valve,
        advice: Advice,
        load: Callable[[float], LoadView],
    ) -> None:
        self._planner = planner
        self._tree = tree
        self._valve = valve
        self._advice = advice
        self._load = load

    def plan(self, now: float) -> Outcome:
        """Grant what the step computes. Empty only if nothing can run."""
        outcome = Outcome()
        decodes, prompts = self._split()
        shape = NO_OPINION
        if self._advice.wants_shape:
            shape = self._advice.shape(self._view(now, decodes, prompts))
        self._fill(now, self._caps(shape), decodes, prompts, outcome, advised=True)
        if self._planner.is_empty and self._could_run():
            outcome.stalled = True
            decodes, prompts = self._split()
            self._fill(now, self._caps(NO_OPINION), decodes, prompts, outcome, advised=False)
        if self._tree.charges:
            self._tree.charge(self._work())
        return outcome

    def _caps(self, shape: Shape) -> Caps:
        limits = self._planner.limits
        return Caps.of(shape, limits.max_tokens, limits.max_seqs)

    def _split(self) -> tuple[list[Request], list[Request]]:
        decodes, prompts = [], []
        for request in self._planner.running.values():
            if request.fed == request.computed:
                if request.total < request.limit:
                    decodes.append(request)
            elif request.need:
                prompts.append(request)
        return decodes, prompts

    def _view(self, now: float, decodes: list[Request], prompts: list[Request]) -> StepView:
        return StepView(
            load=self._load(now),
            number=self._planner.number,
            decodes=len(decodes),
            context_tokens=sum(request.computed for request in decodes),
            prefill_backlog=sum(request.need for request in prompts),
        )

    def _fill(
        self,
        now: float,
        caps: Caps,
        decodes: list[Request],
        prompts: list[Request],
        outcome: Outcome,
        advised: bool,
    ) -> None:
        self._grant_decodes(now, caps, decodes, outcome)
        room = Room.of(self._planner, caps)
        if outcome.preempted:
            outcome.waits = "memory is short"
            prompts = [request for request in prompts if request.handle in self._planner.running]
        limits = self._quota(now, prompts, room) if advised else {}
        if not outcome.preempted:
            # What the quota takes from running prompts is there for those who wait.
            left = room.after(prompts, limits)
            admitted = self._admissions(now, caps, left, outcome, advised)
            if advised and admitted:
                limits |= self._quota(now, admitted, left)
            prompts = prompts + admitted
        self._grant_prompts(prompts, limits, caps, room, outcome)

    def _grant_decodes(
        self, now: float, caps: Caps, decodes: list[Request], outcome: Outcome
    ) -> None:
        planner = self._planner
        decodes = decodes[: min(caps.tokens, caps.seqs)]
        full = [request for request in decodes if request.computed >= request.room]
        if len(full) <= planner.pool.num_free:
            planner.decode(decodes)
            return
        for request in decodes:
            if outcome.preempted and request.handle not in planner.running:
                continue
            if request.computed < request.room or self._make_room(now, request, outcome):
                planner.decode((request,))

    def _make_room(self, now: float, request: Request, outcome: Outcome) -> bool:
        """One block for a decode: a free one, or one that a preempted request held."""
        planner = self._planner
        if planner.pool.num_free:
            return True
        for victim, plugin in self._victims(now, request):
            planner.preempt(victim)
            outcome.preempted.append(Preemption(victim, plugin))
            if planner.pool.num_free:
                return True
        return False

    def _victims(self, now: float, request: Request) -> list[tuple[Request, str]]:
        """In order: the owner's choice, then the tree's. The oldest may take from anybody, the
        others only from those that are worse than themselves."""
        planner, tree = self._planner, self._tree
        oldest = planner.oldest
        candidates = planner.preemptible()
        if request is oldest:
            candidates = [r for r in planner.running.values() if r is not oldest]
        ordered = sorted(candidates, key=lambda r: tree.badness(r, now))
        if request is not oldest and request in ordered:
            ordered = ordered[: ordered.index(request)]
        elif request is not oldest:
            mine = tree.badness(request, now)
            ordered = [r for r in ordered if tree.badness(r, now) < mine]
        by_handle = {r.handle: r for r in ordered}
        shortage = VictimView(now, 1, tuple(r.view for r in ordered))
        chosen = self._advice.victims(shortage) if ordered else []
        first = [(by_handle.pop(handle), plugin) for handle, plugin in chosen]
        return first + [(r, CORE) for r in by_handle.values()]

    def _admissions(
        self,
        now: float,
        caps: Caps,
        left: "Room",
        outcome: Outcome,
        advised: bool,
    ) -> list[Request]:
        admitted: list[Request] = []
        tokens = left.tokens
        while self._tree:
            outcome.waits = _limit(self._planner, caps, left, tokens, len(admitted))
            if outcome.waits is not None:
                break
            request, by = self._next(now, advised)
            if not self._fits(request, caps):
                outcome.waits = "no free blocks"
                break
            self._take(request, by, outcome)
            admitted.append(request)
            tokens -= request.need
        return admitted

    def _next(self, now: float, advised: bool) -> tuple[Request, str]:
        if not advised:
            return self._valve.oldest, "fallback"
        if self._valve.is_open:
            return self._valve.oldest, "valve"
        head = self._tree.head(now)
        assert head is not None, "the tree is not empty"
        return head, "order"

    def _fits(self, request: Request, caps: Caps) -> bool:
        planner = self._planner
        reserve = caps.reserve_blocks if planner.running else 0
        return planner.admission_blocks(request) + reserve <= planner.pool.num_free

    def _take(self, request: Request, by: str, outcome: Outcome) -> None:
        self._tree.admit(request)
        self._valve.admitted(request)
        self._planner.admit(request)
        outcome.admitted.append((request, by))

    def _quota(self, now: float, prompts: list[Request], room: "Room") -> dict[int, int]:
        if not prompts or not self._advice.wants_quota:
            return {}
        needs = tuple(PrefillNeed(request.view, request.need) for request in prompts)
        limits = self._advice.quota(QuotaView(now, needs, room.tokens))
        oldest = min(request.handle for request in prompts)
        limits[oldest] = max(limits.get(oldest, UNLIMITED), 1)
        return limits

    def _grant_prompts(
        self,
        prompts: list[Request],
        limits: dict[int, int],
        caps: Caps,
        room: "Room",
        outcome: Outcome,
    ) -> None:
        partial = 0
        for request in prompts[: room.seqs]:
            length = min(request.need, room.tokens, limits.get(request.handle, UNLIMITED))
            if length <= 0:
                continue
            if length < request.need:
                partial += 1
                if partial > caps.partial_prefills:
                    continue
            outcome.recomputed += _again(request, length)
            self._planner.grant(request, length)
            room.tokens -= length

    def _could_run(self) -> bool:
        decodes, prompts = self._split()
        if prompts or self._planner.oldest in decodes:
            return True
        if any(self._has_block(request) for request in decodes):
            return True
        if not self._tree or not self._planner.seats_left:
            return False
        oldest = self._valve.oldest
        return self._planner.admission_blocks(oldest) <= self._planner.pool.num_free

    def _has_block(self, request: Request) -> bool:
        return request.computed < request.room or self._planner.pool.num_free > 0

    def _work(self) -> dict[Node, Work]:
        total: dict[Node, Work] = {}
        for request, (known, decoded) in self._planner.work().items():
            leaf = request.leaf
            assert isinstance(leaf, Leaf)
            work = _work_of(request, known, decoded)
            total[leaf] = total[leaf].plus(work) if leaf in total else work
        return total


@dataclass(slots=True)
class Room:
    """What is left of the step for prompts: positions and sequences."""

    tokens: int
    seqs: int

    @staticmethod
    def of(planner: Planner, caps: Caps) -> "Room":
        """After the decodes were granted."""
        used = planner.limits.max_tokens - planner.tokens_left
        tokens = min(caps.tokens - used, caps.prefill_tokens, planner.tokens_left)
        return Room(max(tokens, 0), max(caps.seqs - used, 0))

    def after(self, prompts: list[Request], limits: dict[int, int]) -> "Room":
        """What is left when these prompts get what they need, or what they are limited to."""
        needs = [min(one.need, limits.get(one.handle, UNLIMITED)) for one in prompts]
        return Room(max(self.tokens - sum(needs), 0), max(self.seqs - len(prompts), 0))


def _limit(
    planner: Planner, caps: Caps, left: Room, tokens: int, admitted: int
) -> str | None:
    """Why nobody more can be admitted in this step; None = somebody can."""
    if not planner.seats_left:
        return "no free seat"
    if tokens <= 0 or admitted >= left.seqs:
        return "the step is full"
    if admitted >= caps.new_seqs:
        return "admissions of the step are limited"
    return None


def _again(request: Request, length: int) -> int:
    """How many of the next positions were computed before, and lost in a preemption."""
    return min(max(request.recompute_until - request.computed, 0), length)


def _work_of(request: Request, known: int, decoded: int) -> Work:
    again = _again(request, known)
    cached = request.num_cached if known and request.computed == request.num_cached else 0
    return Work(prefill=known - again, decode=decoded, cached=cached, recompute=again)


def _at_most(limit: int | None, maximum: int) -> int:
    return maximum if limit is None else min(limit, maximum)
