"""Moves of requests between the queues, each with its reason in the log."""

import math
from collections.abc import Sequence, Sized

from jackfield.core.api import (
    Event,
    EventKind,
    FinishReason,
    LoadView,
    ReleaseCause,
    Verdict,
    VerdictKind,
)
from jackfield.core.engine.advice import Advice
from jackfield.core.engine.clock import Clock
from jackfield.core.engine.decisions import CORE, Action, Decision, DecisionLog
from jackfield.core.engine.distributions import Distributions
from jackfield.core.engine.followers import Followers
from jackfield.core.engine.gates import Gate, Gates
from jackfield.core.engine.messages import Delta, Rejection
from jackfield.core.engine.metrics import Metrics
from jackfield.core.engine.outcome import Detour, Outcome, Preemption
from jackfield.core.engine.planner import Planner
from jackfield.core.engine.reasons import ADMITTED, Code, why_waits
from jackfield.core.engine.request import Request, Status
from jackfield.core.engine.tally import Tally
from jackfield.core.engine.timings import Timings, timings_of
from jackfield.core.engine.tree import WaitingTree
from jackfield.core.engine.valve import Valve
from jackfield.core.kv.request_chain import RequestChain

EVENT_OF = {
    FinishReason.ABORT: EventKind.ABORTED,
    FinishReason.ERROR: EventKind.FAILED,
}
ENDED = {
    FinishReason.STOP: "a stop token or text ended it",
    FinishReason.LENGTH: "it has all the tokens it may have",
    FinishReason.ABORT: "the caller gave it up",
}
CAUSE_OF = {
    FinishReason.STOP: ReleaseCause.FINISHED,
    FinishReason.LENGTH: ReleaseCause.FINISHED,
}
BY_ITSELF = frozenset({FinishReason.STOP, FinishReason.LENGTH})
SOON = 1e-3


class Lifecycle:
    """Owns who waits where. Every request that arrives leaves exactly once, through `end`."""

    def __init__(
        self,
        planner: Planner,
        tree: WaitingTree,
        valve: Valve,
        advice: Advice,
        clock: Clock,
        log: DecisionLog,
        park_timeout: float,
        tally: Tally,
        in_flight: Sized,
    ) -> None:
        self.planner = planner
        self.tree = tree
        self.valve = valve
        self.gates = Gates(tally)
        self.metrics = Metrics(Distributions(planner.limits.max_model_len))
        self.outbox: list[Delta] = []
        self.ended: list[Request] = []
        self.head_waits: Code | None = None
        self._advice = advice
        self._clock = clock
        self._log = log
        self._park_timeout = park_timeout
        self._tally = tally
        self._in_flight = in_flight
        self._events: list[Event] = []
        self._followers = Followers()
        self._loading: dict[RequestChain, Request] = {}

    def load(self, now: float) -> LoadView:
        """Counts for policies."""
        pool = self.planner.pool
        return LoadView(
            now=now,
            waiting=len(self.tree),
            parked=len(self.gates),
            running=len(self.planner.running),
            waiting_tokens=self.valve.num_tokens,
            free_blocks=pool.num_free,
            total_blocks=pool.num_blocks,
            in_flight=len(self._in_flight),
            queued=self._tally.counts,
        )

    def arrive(self, requests: Sequence[Request]) -> None:
        """New requests, or requests whose deferral is over: ask the advisors."""
        requests = [request for request in requests if not request.is_done]
        if not requests:
            return
        now = self._clock.now()
        verdicts = self._advice.admit([request.view for request in requests], self.load(now))
        for request, (verdict, plugin) in zip(requests, verdicts, strict=True):
            self._apply(request, verdict, plugin, now)

    def _apply(self, request: Request, verdict: Verdict, plugin: str, now: float) -> None:
        if verdict.kind is VerdictKind.REJECT:
            self.metrics.rejections[plugin] += 1
            self._reject(request, verdict, plugin)
        elif verdict.kind is VerdictKind.DEFER:
            self._defer(request, verdict, plugin, now)
        else:
            if verdict.kind is VerdictKind.DEGRADE:
                self._degrade(request, verdict, plugin)
            self.enter(request)

    def _degrade(self, request: Request, verdict: Verdict, plugin: str) -> None:
        most = max(verdict.max_tokens or 1, request.params.min_tokens)
        if most < request.max_tokens:
            request.shorten(most)
            reason = f"{verdict.code}: at most {most} tokens"
            self.note(request, Action.DEGRADE, reason, plugin, verdict.code)

    def _reject(self, request: Request, verdict: Verdict, plugin: str) -> None:
        when = f"; try again in {verdict.retry_after:.3g} s" if verdict.retry_after > 0 else ""
        error = f"refused by {plugin}: {verdict.code}{when}"
        self.note(request, Action.REJECT, error, plugin, verdict.code)
        delta = Delta(request.id, request.index, ())
        delta.rejection = Rejection(verdict.code, verdict.retry_after)
        kind = EventKind.REJECTED
        code = Code.REJECTED
        self.end(request, FinishReason.ERROR, error=error, code=code, kind=kind, delta=delta)

    def _defer(self, request: Request, verdict: Verdict, plugin: str, now: float) -> None:
        since = request.arrival
        if now - since > self._park_timeout:
            error = f"deferred by {plugin} for more than {self._park_timeout:g} s: {verdict.code}"
            code = Code.DEFERRED_TOO_LONG
            self.end(request, FinishReason.ERROR, error=error, code=code)
            return
        until = min(max(verdict.until, now + SOON), since + self._park_timeout + SOON)
        reason = f"{verdict.code}: it is asked again in {until - now:.3g} s"
        self.park(request, verdict.code, reason, plugin, until, ask=True)

    def enter(self, request: Request) -> None:
        """Nothing keeps the request but, perhaps, the prompt of its group."""
        group = request.group
        if group is not None and group.awaits_prompt(request):
            until = self._clock.now() + self._park_timeout
            reason = "another answer computes the prompt"
            self.park(request, Code.AWAITS_PROMPT, reason, CORE, until)
            return
        self.wait(request)

    def wait(self, request: Request) -> None:
        """The request queues for a seat."""
        if request.status is not Status.WAITING:
            request.move(Status.WAITING)
        request.since = now = self._clock.now()
        self.tree.push(request, now)
        self.valve.push(request)

    def park(
        self,
        request: Request,
        code: str,
        reason: str,
        plugin: str,
        until: float,
        *,
        ask: bool = False,
    ) -> None:
        """Hold the request outside the queue; `ask`: the advisors judge it again when woken."""
        request.move(Status.PARKED)
        request.since = self._clock.now()
        resume = (lambda woken: self.arrive([woken])) if ask else self.wait
        self.gates.park(request, Gate(reason, plugin, resume, request.arrival), until)
        self.note(request, Action.PARK, reason, plugin, code)

    def wake(self, request: Request, code: Code, reason: str) -> None:
        """What the request waited for has come."""
        gate = self.gates.why(request)
        if gate is not None:
            self.note(request, Action.WAKE, reason, gate.plugin, code)
            self.gates.wake(request)

    def wake_due(self) -> None:
        """Wake all whose time has come."""
        for request in self.gates.due(self._clock.now()):
            self.wake(request, Code.TIME_CAME, "its time has come")

    def planned(self, outcome: Outcome) -> None:
        """Bookkeeping after a step was planned."""
        self.metrics.recomputed_tokens += outcome.recomputed
        now = self._clock.now()
        for request, by, plugin in outcome.admitted:
            self.metrics.admissions += 1
            self.metrics.valve_admissions += by is Code.VALVE
            request.since = now
            self.metrics.shared_tokens += request.num_cached
            if request.admitted_at is None:
                request.admitted_at = now
                request.first_cached = request.num_cached
            self._event(EventKind.ADMITTED, request)
            self.note(request, Action.ADMIT, ADMITTED[by], plugin, by)
        for preemption in outcome.preempted:
            self._preempted(preemption)
        for detour in outcome.detours:
            self._set_aside(detour)
        self.head_waits = outcome.waits
        head = outcome.head
        if outcome.waits is not None and head is not None and head.status is Status.WAITING:
            self._waits_on(head, outcome.waits)
        for held in self.tree.held_lately():
            if held.request.status is Status.WAITING:
                code = Code.HELD_BACK
                self.note(held.request, Action.WAIT, held.reason, held.plugin, code)

    def _set_aside(self, detour: Detour) -> None:
        request, code, reason, until, leader = detour
        self.park(request, code, reason, CORE, until)
        if leader is not None:
            self._followers.add(leader, request)
        elif request.chain is not None:
            self._loading[request.chain] = request

    def loaded(self, chains: Sequence[RequestChain]) -> None:
        """What these requests waited for has come from a tier, or will not come."""
        for chain in chains:
            request = self._loading.pop(chain, None)
            if request is not None and request.status is Status.PARKED:
                self.wake(request, Code.LOADED, "what a tier held of it is loaded, or is lost")

    def followed(self, leaders: Sequence[Request]) -> None:
        """Steps were planned for these requests, or they have lost their seat or ended."""
        for leader in leaders:
            for follower in self._followers.ready(leader):
                if follower.status is Status.PARKED:
                    reason = f"{leader.id} has computed what both begin with, or has stopped"
                    self.wake(follower, Code.PREFIX_READY, reason)

    def _waits_on(self, head: Request, code: Code) -> None:
        """Asked after every step, so that the sentence is made only for news."""
        if not self._log.waits_on(head.id, head.index, code):
            reason = why_waits(code, head, self.planner)
            self.note(head, Action.WAIT, reason, self.limiter(code), code)

    def limiter(self, code: Code) -> str:
        """Whose decision it is that the first of the queue waits."""
        if code is Code.NOT_CHOSEN:
            return self._advice.planner or CORE
        if code in (Code.ADMISSIONS_LIMITED, Code.BLOCKS_RESERVED, Code.STEP_LIMITED):
            return "+".join(self._advice.shaping) or CORE
        return CORE

    def _preempted(self, preemption: Preemption) -> None:
        request, plugin, reason, code = preemption
        self.metrics.preemptions += 1
        if code is Code.DISPLACED:
            self.metrics.displacements[plugin] += 1
        self.tree.leave(request)
        self._event(EventKind.PREEMPTED, request)
        self.note(request, Action.PREEMPT, reason, plugin, code)
        self._release_group(request)
        self.followed((request,))
        if request.unseen:
            # It may not be planned before that step is collected, however long that takes.
            reason = "a step that samples for it is in flight"
            self.park(request, Code.AWAITS_STEP, reason, CORE, math.inf)
        else:
            self.wait(request)

    def prompt_planned(self, request: Request) -> None:
        """The prompt of a group is planned to its end: the other answers may share it."""
        self._release_group(request)

    def _release_group(self, request: Request) -> None:
        group = request.group
        if group is not None and request is group.leader:
            group.open()
            for member in group.members:
                if member.status is Status.PARKED and not member.unseen:
                    self._wake_member(member)

    def _wake_member(self, member: Request) -> None:
        gate = self.gates.why(member)
        if gate is not None and gate.plugin == CORE:
            self.wake(member, Code.PROMPT_READY, "the prompt is computed")

    def end(
        self,
        request: Request,
        finish: FinishReason,
        *,
        tokens: Sequence[int] = (),
        stop: int | None = None,
        error: str | None = None,
        code: Code | None = None,
        kind: EventKind | None = None,
        delta: Delta | None = None,
    ) -> None:
        """The request leaves, whatever it was doing; its last delta goes out."""
        if error is not None and request.chain is not None:
            request.chain.tainted = True
        self._detach(request, CAUSE_OF.get(finish, ReleaseCause.ABORTED))
        request.move(Status.FINISHED)
        request.finish, request.failure = finish, error
        if error is None:
            self.note(request, Action.FINISH, ENDED[finish], CORE, finish.value)
        else:
            assert code is not None, "a failure has a code"
            self.note(request, Action.FAIL, error, CORE, code)
        self._event(kind or EVENT_OF.get(finish, EventKind.FINISHED), request)
        base = delta or Delta(request.id, request.index, tokens)
        base.finish, base.stop, base.error = finish, stop, error
        base.timings = self._measure(request, finish)
        self.outbox.append(base)
        self.ended.append(request)
        self._release_group(request)
        self.followed((request,))

    def _measure(self, request: Request, finish: FinishReason) -> Timings:
        timings = timings_of(request, self._clock.now())
        self.metrics.finished[finish.value] += 1
        if request.group is not None:
            request.group.ended(request)
        if finish in BY_ITSELF:
            self.metrics.distributions.ended(request, timings)
        return timings

    def prompt_done(self, request: Request) -> None:
        """The prompt is computed and collected; once per answer."""
        cached = request.first_cached
        self.metrics.cached_prompt_tokens += cached
        self.metrics.computed_prompt_tokens += len(request.prompt) - cached

    def now(self) -> float:
        """The engine's clock."""
        return self._clock.now()

    def _detach(self, request: Request, cause: ReleaseCause) -> None:
        if request.status is Status.WAITING:
            self.tree.remove(request)
            self.valve.remove(request)
        elif request.status is Status.PARKED:
            self.gates.remove(request)
        elif request.status is Status.RUNNING:
            self.tree.leave(request)
        if request.chain is not None:
            self._loading.pop(request.chain, None)
        self.planner.release(request, cause)

    def note(self, request: Request, action: Action, reason: str, plugin: str, code: str) -> None:
        """Write the reason of a decision down."""
        now, step = self._clock.now(), self.planner.number
        decision = Decision(now, step, request.id, action, reason, plugin, code, request.index)
        request.decision = decision
        self._log.add(decision)

    def arrived(self, request: Request) -> None:
        """The request is known to the engine."""
        self._event(EventKind.ARRIVED, request)
        reason = f"{len(request.prompt)} prompt tokens"
        self.note(request, Action.ARRIVE, reason, CORE, Code.ARRIVED)

    def _event(self, kind: EventKind, request: Request) -> None:
        if self._advice.wants_events:
            now = self._clock.now()
            self._events.append(Event(kind, request.view, now, len(request.output)))

    def tell_observers(self) -> None:
        """Hand over the events since the last step."""
        if self._events:
            events, self._events = tuple(self._events), []
            self._advice.observe(events)

    def fall_back(self) -> None:
        """Replace disciplines that have used up their faults, and place everybody anew."""
        failed = [level for level in self.tree.levels if level.failed]
        if not failed:
            return
        for level in failed:
            level.fall_back()
        running = list(self.planner.running.values())
        self.tree.rebuild(self.valve.requests(), running, self._clock.now())
