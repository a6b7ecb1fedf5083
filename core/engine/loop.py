"""The engine: one object, one thread, one step after another."""

import logging
from collections import deque
from time import perf_counter
from typing import Any, NamedTuple

from jackfield.core.api import (
    EngineStoppedError,
    FinishReason,
    RequestError,
)
from jackfield.core.engine.clock import Clock
from jackfield.core.engine.collect import collect
from jackfield.core.engine.decisions import Action, Decision, DecisionLog
from jackfield.core.engine.door import Admissible, Door, DoorLimits
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.lifecycle import Lifecycle
from jackfield.core.engine.making import RequestMaker
from jackfield.core.engine.masks import masks
from jackfield.core.engine.messages import Delta, NewRequest
from jackfield.core.engine.metrics import Metrics
from jackfield.core.engine.planner import Limits, Planner
from jackfield.core.engine.policies import Policies
from jackfield.core.engine.readers import readers_of
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request
from jackfield.core.engine.schedule import Scheduler
from jackfield.core.engine.shrinking import Shrinking
from jackfield.core.engine.steps import Executor, ReadExperts, StepPlan
from jackfield.core.engine.tally import Tally
from jackfield.core.engine.transferring import Transferring
from jackfield.core.engine.tree import TreeLimits, WaitingTree
from jackfield.core.engine.turn import Turn
from jackfield.core.engine.valve import Valve
from jackfield.core.kv.build import Memory
from jackfield.core.kv.cache_metrics import CacheMetrics

log = logging.getLogger("jackfield.engine")


class EngineSettings(NamedTuple):
    """Numbers that fix an engine. overlap: steps in flight while the next is planned.

    starvation_share: of admissions that go to the oldest (0 = off). park_timeout in seconds.
    """

    limits: Limits
    vocab_size: int
    eos_ids: frozenset[int] = frozenset()
    overlap: int = 0
    starvation_share: float = 0.01
    park_timeout: float = 600.0
    decision_log: int = 65_536
    seed: int = 0
    class_idle_seconds: float = 600.0
    max_classes: int = 10_000


class InFlight(NamedTuple):
    """A submitted step."""

    plan: StepPlan
    requests: list[Request]
    ticket: Any
    started: float
    launched: float


class Engine:
    """Takes requests, runs steps, gives deltas. Not thread-safe: one thread calls all methods."""

    def __init__(
        self,
        settings: EngineSettings,
        policies: Policies,
        memory: Memory,
        executor: Executor,
        clock: Clock,
    ) -> None:
        limits = settings.limits
        planner = Planner(memory.cache, memory.mover, limits)
        pool = memory.cache.pool
        tree = WaitingTree(
            policies.branch,
            TreeLimits(settings.park_timeout, settings.class_idle_seconds, settings.max_classes),
        )
        policies.services.bind(planner, tree)
        tally = Tally()
        self._in_flight: deque[InFlight] = deque()
        valve = Valve(settings.starvation_share, tally)
        self.log = DecisionLog(settings.decision_log)
        self.lifecycle = Lifecycle(
            planner, tree, valve, policies.advice, clock, self.log, settings.park_timeout, tally,
            self._in_flight,
        )  # fmt: skip
        self._scheduler = Scheduler(
            planner, tree, valve, policies.advice, self.lifecycle.load, settings.park_timeout
        )
        door = DoorLimits(
            settings.vocab_size, limits.max_model_len, pool.num_tokens, pool.block_size,
            memory.cache.shares,
        )  # fmt: skip
        self.door_limits = door
        self._door = Door(door)
        self._settings = settings
        self._policies = policies
        self._planner = planner
        self._cache, self._mover = memory
        self._transferring = Transferring(memory, executor, self.lifecycle, clock)
        self._executor = executor
        self._shrinking = Shrinking(planner, self.lifecycle, self.log, executor)
        self._clock = clock
        self._maker = RequestMaker(memory.cache, clock, settings.seed, settings.eos_ids)
        self._requests: dict[str, list[Request]] = {}
        self._arrivals: list[Request] = []
        self._stopped: str | None = None
        self._reported: set[Guard] = set()
        self._turn = Turn()
        self._collected_at = 0.0
        self.expert_counts: ReadExperts = getattr(executor, "expert_counts", dict)

    @property
    def metrics(self) -> Metrics:
        """Counters since the start."""
        return self.lifecycle.metrics

    @property
    def cache_metrics(self) -> CacheMetrics:
        """What the cache has counted since the start."""
        self.settle()
        return self._cache.metrics

    @property
    def end(self) -> str | None:
        """Why no step will succeed any more; None = the engine lives. For any thread."""
        failure: str | None = getattr(self._executor, "failure", None)
        return self._stopped or failure

    def diagnose(self, limit: float) -> str | None:
        """A step takes longer than so many seconds: why, if the executor knows. Then it is the
        engine's end. For any thread."""
        ask = getattr(self._executor, "diagnose", None)
        found: str | None = None if ask is None else ask(limit)
        return found

    @property
    def has_work(self) -> bool:
        """Whether any request has not ended, a step is in flight, or there is news to fetch."""
        return bool(self._requests or self._in_flight or self.lifecycle.outbox)

    @property
    def has_transfers(self) -> bool:
        """Whether one is under way. `step` frees what it holds, else `end_transfers`."""
        return self._mover.is_busy

    @property
    def next_alarm(self) -> float | None:
        """When `step` is worth calling although nothing runs; engine clock."""
        gates, tree = self.lifecycle.gates.next_alarm(), self.lifecycle.tree.next_alarm
        alarms = (gates, tree, self._mover.next_alarm())
        return min((alarm for alarm in alarms if alarm is not None), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether only time or an arrival can bring work: everybody left is parked or held back."""
        busy = (
            self._arrivals or self._in_flight or self._planner.running or self.lifecycle.outbox
            or self._mover.is_busy
        )  # fmt: skip
        return not busy and (not len(self.lifecycle.tree) or self.lifecycle.tree.is_held)

    def add(self, new: NewRequest, checked: Admissible | None = None) -> None:
        """Accept a request or raise `RequestError`. It is planned from the next step on.

        checked: what `validate` made of it, so that it is not checked again.
        """
        with self._turn.take("add"):
            self._add(new, checked)

    def _add(self, new: NewRequest, checked: Admissible | None) -> None:
        if self._stopped:
            raise EngineStoppedError(self._stopped)
        if new.id in self._requests:
            raise RequestError(f"request id {new.id!r} is in use", param="request_id")
        checked = checked or self._door.check(new)
        members = self._maker.make(new, checked)
        self._requests[new.id] = list(members)
        self._arrivals += members
        for member in members:
            self.lifecycle.arrived(member)

    def validate(self, new: NewRequest) -> Admissible:
        """Raise what `add` would raise for the request itself, and change nothing."""
        return self._door.check(new)

    def abort(
        self,
        request_id: str,
        index: int | None = None,
        finish: FinishReason = FinishReason.ABORT,
    ) -> None:
        """End a request or one of its answers, and free its blocks; unknown ids are ignored.

        finish: STOP for an answer that its text has ended.
        """
        with self._turn.take("abort"):
            for request in list(self._requests.get(request_id, ())):
                if index is None or request.index == index:
                    self.lifecycle.end(request, finish)
            self._forget_ended()

    def step(self, *, later: bool = False) -> list[Delta]:
        """Plan and submit one step, collect what is due. Returns the news since the last call.

        later: what steps write, and what answers leave behind that have ended, is made known to
        the cache while as many steps are under way as may be, or when somebody asks, so that it
        holds up neither a launch nor news. Numbers of the cache need `settle` then.
        """
        with self._turn.take("step"):
            self._cache.defers = later
            self._drain()
            self._submit()
            self.lifecycle.tell_observers()
        self._forget_ended()
        deltas, self.lifecycle.outbox = self.lifecycle.outbox, []
        return deltas

    def _drain(self) -> None:
        self._report_faults()
        self._transferring.begin()
        self.lifecycle.fall_back()
        self.lifecycle.wake_due()
        arrivals, self._arrivals = self._arrivals, []
        self.lifecycle.arrive(arrivals)

    def _report_faults(self) -> None:
        """Write down, once, that a plugin was switched off."""
        for guard in self._policies.guards:
            if guard.off and guard not in self._reported:
                self._reported.add(guard)
                reason = guard.last_fault or "it used up its faults"
                self.log.add(
                    Decision(
                        self._clock.now(), self._planner.number, "", Action.FAULT, reason,
                        guard.plugin, Code.SWITCHED_OFF,
                    )
                )  # fmt: skip

    def _submit(self) -> None:
        started = perf_counter()
        self._policies.services.begin()
        outcome = self._scheduler.plan(self._clock.now())
        plan, requests = self._planner.commit()
        self.lifecycle.planned(outcome)
        if outcome.stalled:
            self._count_stall()
        self.metrics.planning.add(perf_counter() - started)
        if plan is not None:
            self._launch(plan, requests)
            self.lifecycle.followed(requests[plan.num_decodes :])
        self._transferring.order()
        while len(self._in_flight) > (self._settings.overlap if plan is not None else 0):
            self._cache.tidy()
            self._collect()
            if plan is None:
                break
        if plan is None and not self._in_flight and self._requests:
            self._transferring.wait()

    def _count_stall(self) -> None:
        advice = self._policies.advice
        planner = [advice.planner] if advice.planner is not None else []
        for plugin in planner or advice.limiting or [self._policies.branch.level.name]:
            self.metrics.policy_stalls[plugin] += 1

    def _launch(self, plan: StepPlan, requests: list[Request]) -> None:
        self.metrics.steps += 1
        num_tokens = plan.num_tokens
        self.metrics.prompt_tokens += num_tokens - plan.num_decodes
        self.metrics.distributions.step_tokens.add(num_tokens)
        started, launched = perf_counter(), self._clock.now()
        try:
            ticket = self._executor.forward(plan)
            late = [request for request in requests if request.binder is not None]
            while late and self._in_flight:
                self._collect()
            self._executor.sample(ticket, masks(self.lifecycle, plan, requests) if late else {})
        except Exception as error:
            self._fail(plan, requests, error)
            return
        self._in_flight.append(InFlight(plan, requests, ticket, started, launched))
        self._planner.publish(requests[plan.num_decodes :], plan.number)
        self._open_groups(requests)

    def _open_groups(self, requests: list[Request]) -> None:
        for request in requests:
            group = request.group
            if group is not None and not group.is_open and request.computed >= len(request.prompt):
                self.lifecycle.prompt_planned(request)

    def _collect(self) -> None:
        flight = self._in_flight.popleft()
        try:
            result = self._executor.collect(flight.ticket)
        except Exception as error:
            self._fail(flight.plan, flight.requests, error)
            return
        collect(self.lifecycle, flight.plan, flight.requests, result)
        self.metrics.step_times.add(perf_counter() - flight.started)
        self._measure(flight)

    def _measure(self, flight: InFlight) -> None:
        """Tell the step model how long the step took; one in flight begins when the last ends."""
        now, model = self._clock.now(), self._policies.services.model
        began, self._collected_at = max(flight.launched, self._collected_at), now
        if model.wanted:
            plan = flight.plan
            context = sum(part.start for part in plan.slices[: plan.num_decodes])
            prefill = plan.num_tokens - plan.num_decodes
            model.add(now - began, plan.num_decodes, context, prefill)

    def _fail(self, plan: StepPlan, requests: list[Request], error: Exception) -> None:
        """A fault in a kernel or a model costs the requests of that step, and nothing else."""
        self.metrics.failed_steps += 1
        log.error("step %d failed", plan.number, exc_info=error)
        reason = f"step {plan.number} failed: {type(error).__name__}: {error}"
        lost = self._cache.invalidate(plan.number)
        readers = readers_of(plan, requests, lost, self._planner)
        joined = {join.handle for join in plan.joins}
        seated = [r for r in self._planner.running.values() if r.handle in joined]
        for request in dict.fromkeys([*requests, *seated, *readers]):
            if not request.is_done:
                code = Code.STEP_FAILED
                self.lifecycle.end(request, FinishReason.ERROR, error=reason, code=code)
        self._shrinking.failed(plan, error)
        if isinstance(error, EngineStoppedError):
            self._stop(str(error))

    def _stop(self, reason: str) -> None:
        self._stopped = f"the engine has stopped: {reason}"
        for members in list(self._requests.values()):
            for request in members:
                if not request.is_done:
                    error, code = self._stopped, Code.ENGINE_STOPPED
                    self.lifecycle.end(request, FinishReason.ERROR, error=error, code=code)
        self._in_flight.clear()

    def _forget_ended(self) -> None:
        for request in self.lifecycle.ended:
            members = self._requests[request.id]
            members.remove(request)
            if not members:
                del self._requests[request.id]
        self.lifecycle.ended.clear()

    def requests(self) -> list[Request]:
        """All answers that have not ended."""
        return [request for members in self._requests.values() for request in members]

    def explain(self, request_id: str) -> list[Decision]:
        """Why the request waited, ran, lost its seat or ended; oldest first."""
        return self.log.of(request_id)

    def faults(self) -> dict[str, str]:
        """Plugins that were switched off, and their last fault; "core": why steps got smaller."""
        off = {g.plugin: g.last_fault or "" for g in self._policies.guards if g.off}
        return self._cache.finder.faults() | off | self._mover.faults() | self._shrinking.report()

    def fault_counts(self) -> dict[str, int]:
        """How often each plugin failed that ever did."""
        return {guard.plugin: guard.faults for guard in self._policies.guards if guard.faults}

    def end_transfers(self) -> None:
        """Account for transfers that have ended, as a step does first of all."""
        with self._turn.take("end_transfers"):
            self._transferring.begin()

    def settle(self) -> None:
        """Put in order what `step` has left for later; not while another call is under way."""
        if not self._turn.is_taken:
            self._cache.settle()

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks. False, and nothing is forgotten, while any is in use."""
        with self._turn.take("reset_prefix_cache"):
            return self._cache.reset()

    def check(self) -> None:
        """Check all invariants of seats, blocks and queues. Raises `AssertionError`."""
        self._planner.check()
        waiting = self.lifecycle.valve.requests()
        assert len(waiting) == len(self.lifecycle.tree), "tree and valve differ"
        for request in (*waiting, *self.lifecycle.gates.requests()):
            assert not request.blocks and request.seat < 0, f"{request.id} waits and holds"

    def close(self) -> None:
        """End everything; no method is called afterwards."""
        self._stop("it was closed")
        self._executor.close()
