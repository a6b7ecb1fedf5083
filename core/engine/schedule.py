"""One step's plan: decodes first, then prompts, then admissions from the tree."""

from collections.abc import Callable

from jackfield.core.api import LoadView, PrefillNeed, QuotaView, Shape, StepView, VictimView, Work
from jackfield.core.engine.advice import NO_OPINION, Advice
from jackfield.core.engine.caps import UNLIMITED, Caps, Room, admission_limit
from jackfield.core.engine.decisions import CORE
from jackfield.core.engine.detours import detour_for
from jackfield.core.engine.displacement import victims_for
from jackfield.core.engine.followers import Computing
from jackfield.core.engine.node import Leaf, leaf_of
from jackfield.core.engine.outcome import Admission, Detour, Outcome, Preemption
from jackfield.core.engine.plan_builder import StepBuilder
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request
from jackfield.core.engine.standing import worst_first
from jackfield.core.engine.tree import WaitingTree
from jackfield.core.engine.valve import Valve
from jackfield.core.kv.load import Later

PATIENCE = 64
"""Steps in which the hook `plan` may leave the oldest out; the core plans the next one."""


class Scheduler:
    """Fills the planner once per step. Orders come from the tree, limits from the advice."""

    def __init__(
        self,
        planner: Planner,
        tree: WaitingTree,
        valve: Valve,
        advice: Advice,
        load: Callable[[float], LoadView],
        park_timeout: float,
    ) -> None:
        self._planner = planner
        self._tree = tree
        self._valve = valve
        self._advice = advice
        self._load = load
        self._park_timeout = park_timeout
        self._caps = self._caps_of(NO_OPINION)
        self._waits: Code | None = None
        self._neglected = 0

    def plan(self, now: float) -> Outcome:
        """Grant what the step computes. Empty only if nothing can run."""
        outcome = Outcome()
        self._tree.begin(now)
        decodes, prompts = self._split()
        caps, owner = self._caps, self._advice.planner
        if self._advice.wants_shape or owner is not None:
            view = self._view(now, decodes, prompts)
            caps = self._caps_of(self._advice.shape(view))
            if owner is not None:
                if self._by_hand(now, view, caps, owner, outcome):
                    return self._charged(now, outcome)
                decodes, prompts = self._split()
        if self._tree.displaces and self._displace(now, caps, outcome):
            decodes, prompts = self._split()
        self._fill(now, caps, decodes, prompts, outcome, advised=True)
        if self._planner.is_empty and not self._awaits_load(outcome) and self._could_run(now):
            outcome.stalled = True
            decodes, prompts = self._split()
            self._fill(now, self._caps, decodes, prompts, outcome, advised=False)
        return self._charged(now, outcome)

    def _charged(self, now: float, outcome: Outcome) -> Outcome:
        is_news = self._tree.changed or self._tree.shapes or outcome.waits is not self._waits
        if outcome.waits is not None and is_news:
            outcome.head = self._tree.head(now)
            self._tree.changed = False
        self._waits = outcome.waits
        if self._tree.charges:
            self._tree.charge(self._planner.decodes, self._chunk_work())
        return outcome

    def _caps_of(self, shape: Shape) -> Caps:
        limits = self._planner.limits
        return Caps.of(shape, limits.max_tokens, limits.max_seqs)

    def _by_hand(
        self, now: float, view: StepView, caps: Caps, owner: str, outcome: Outcome
    ) -> bool:
        """Whether the owner of the hook has planned the step; else no grant of it is left."""
        if self._neglected >= PATIENCE:
            self._neglected = 0
            outcome.stalled = True
            return False

        def seat(request: Request) -> None:
            self._seat(request, keeps_credit=True)

        builder = StepBuilder(
            self._planner, self._tree, self._valve, caps, outcome, owner, now, seat
        )
        done = self._advice.plan(view, builder)
        builder.close()
        if done and not self._planner.is_empty:
            outcome.waits = Code.NOT_CHOSEN if len(self._tree) else None
            oldest = self._planner.oldest
            served = oldest is None or self._planner.is_granted(oldest)
            self._neglected = 0 if served else self._neglected + 1
            return True
        self._planner.undo()
        outcome.recomputed = 0
        outcome.stalled = done and self._could_run(now)
        return not outcome.stalled and done

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
            context_tokens=sum([request.computed for request in decodes]),  # a list is faster
            prefill_backlog=sum([request.need for request in prompts]),
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
        preempted = len(outcome.preempted)
        self._grant_decodes(now, caps, decodes, outcome)
        short = len(outcome.preempted) > preempted
        room = Room.of(self._planner, caps)
        if short:
            outcome.waits = Code.MEMORY_SHORT
            prompts = [request for request in prompts if request.handle in self._planner.running]
        limits = self._quota(now, prompts, caps, room, outcome) if advised else {}
        if not short:
            # What the quota takes from running prompts is there for those who wait.
            left = room.after(prompts, limits)
            admitted = self._admissions(now, caps, left, outcome, advised, prompts)
            if advised and admitted:
                limits |= self._quota(now, admitted, caps, left, outcome)
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
        if planner.pool.num_free or (planner.mover.revoke() and planner.pool.num_free):
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
        planner = self._planner
        oldest = planner.oldest
        candidates = planner.preemptible()
        if request is oldest:
            candidates = [r for r in planner.running.values() if r is not oldest]
        if request is oldest:
            ordered = worst_first(candidates, now)
        else:
            everybody = worst_first({*candidates, request}, now)
            ordered = everybody[: everybody.index(request)]
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
        prompts: list[Request],
    ) -> list[Request]:
        admitted: list[Request] = []
        computing = Computing(prompts)
        rest, seats = left.after((), {}), len(outcome.admitted)
        while self._tree:
            outcome.waits = admission_limit(self._planner, caps, rest, len(admitted), seats)
            if outcome.waits is not None:
                break
            request, by = self._next(now, advised)
            if request is None:
                outcome.waits = Code.HELD_BACK
                break
            if not rest.serves(self._planner, request):
                outcome.waits = caps.full(self._planner)
                break
            outcome.waits = self._shortage(caps, request)
            if outcome.waits is not None:
                break
            patience = now + self._park_timeout
            detour = detour_for(request, self._planner, caps, computing, patience)
            if isinstance(detour, Later):
                outcome.waits = Code.OTHERS_LOAD
                break
            if detour is not None:
                self._set_aside(detour, outcome)
                continue
            self._take(request, by, outcome)
            admitted.append(request)
            computing.add(request)
            rest.promise(request, request.need)
        return admitted

    def _shortage(self, caps: Caps, request: Request) -> Code | None:
        """Why there are no blocks for it, even if others do not keep what was loaded for them."""
        shortage = caps.shortage(self._planner, request)
        if shortage is not None and self._planner.mover.revoke(request.chain):
            shortage = caps.shortage(self._planner, request)
        return shortage

    def _set_aside(self, detour: Detour, outcome: Outcome) -> None:
        """The request waits for content that is under way, outside the queue."""
        self._tree.remove(detour.request)
        self._valve.remove(detour.request)
        outcome.detours.append(detour)

    def _next(self, now: float, advised: bool) -> tuple[Request | None, Code]:
        if not advised:
            return self._oldest(now), Code.FALLBACK
        if self._valve.is_open:
            return self._oldest(now), Code.VALVE
        return self._tree.head(now), Code.ORDER

    def _oldest(self, now: float) -> Request | None:
        """Of those who may be admitted; somebody waits."""
        return self._tree.oldest(now) if self._tree.shapes else self._valve.oldest

    def _take(
        self, request: Request, by: Code, outcome: Outcome, *, keeps_credit: bool = False
    ) -> None:
        plugin = leaf_of(request).orderer if by is Code.ORDER else CORE
        self._seat(request, keeps_credit=keeps_credit)
        outcome.admitted.append(Admission(request, by, plugin))

    def _seat(self, request: Request, *, keeps_credit: bool) -> None:
        self._planner.admit(request)
        self._tree.admit(request)
        self._valve.admitted(request, keeps_credit=keeps_credit)

    def _displace(self, now: float, caps: Caps, outcome: Outcome) -> bool:
        """Give seats to the heads of the queue that running requests of a worse rank hold."""
        planner = self._planner
        while len(outcome.admitted) < min(caps.new_seqs, caps.seqs) and caps.tokens > 0:
            head = self._tree.head(now)
            chosen = victims_for(head, planner, caps, now) if head else []
            if head is None or not chosen:
                break
            for victim, level in chosen:
                planner.preempt(victim)
                reason = f"{head.id} goes first by more than the margin"
                outcome.preempted.append(Preemption(victim, level.name, reason, Code.DISPLACED))
            self._take(head, Code.ORDER, outcome, keeps_credit=True)
        return bool(outcome.preempted)

    def _quota(
        self, now: float, prompts: list[Request], caps: Caps, room: "Room", outcome: Outcome
    ) -> dict[int, int]:
        if not prompts or not self._advice.wants_quota:
            return {}
        needs = tuple(PrefillNeed(request.view, request.need) for request in prompts)
        waiting = self._valve.num_tokens if self._admits(now, caps, outcome) else 0
        limits = self._advice.quota(QuotaView(now, needs, room.tokens, waiting))
        oldest = min(request.handle for request in prompts)
        limits[oldest] = max(limits.get(oldest, UNLIMITED), 1)
        return limits

    def _admits(self, now: float, caps: Caps, outcome: Outcome) -> bool:
        """Whether the next of the queue gets a seat in this step if there is a position for it."""
        seats = min(self._planner.seats_left, caps.new_seqs - len(outcome.admitted))
        if seats <= 0 or outcome.waits is Code.MEMORY_SHORT or not self._tree:
            return False
        head, _ = self._next(now, advised=True)
        return head is not None and caps.fits(self._planner, head)

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
            wanted = min(request.need, limits.get(request.handle, UNLIMITED))
            length = room.chunk(request, wanted)
            if length <= 0:
                continue
            if length < request.need:
                partial += 1
                if partial > caps.partial_prefills:
                    continue
            outcome.recomputed += request.again(length)
            self._planner.grant(request, length)
            room.take(length, wanted)

    def _awaits_load(self, outcome: Outcome) -> bool:
        return outcome.waits is Code.OTHERS_LOAD and not self._planner.running

    def _could_run(self, now: float) -> bool:
        decodes, prompts = self._split()
        if prompts or self._planner.oldest in decodes:
            return True
        if any(self._has_block(request) for request in decodes):
            return True
        if not self._tree or not self._planner.seats_left:
            return False
        oldest = self._oldest(now)
        if oldest is None:
            return False
        return self._planner.admission_blocks(oldest) <= self._planner.pool.num_free

    def _has_block(self, request: Request) -> bool:
        return request.computed < request.room or self._planner.pool.num_free > 0

    def _chunk_work(self) -> dict[Leaf, Work]:
        total: dict[Leaf, Work] = {}
        for chunk in self._planner.chunks:
            leaf, work = leaf_of(chunk.request), _work_of(chunk.request, chunk.length)
            total[leaf] = total[leaf].plus(work) if leaf in total else work
        return total


def _work_of(request: Request, known: int) -> Work:
    again = request.again(known)
    # What a preempted request finds again was billed when it was computed.
    is_first = request.computed == request.num_cached and not request.num_preemptions
    cached = request.num_cached if is_first else 0
    prefill = min(known - again, request.prompt_left)
    return Work(prefill, known - again - prefill, cached, recompute=again)
