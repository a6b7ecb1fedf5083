"""Drives one engine and checks, after every step, the laws that hold whatever its policies say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from jackfield.core.api import FinishReason
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.messages import Delta, NewRequest
from jackfield.core.engine.request import Request
from jackfield.core.engine.steps import StepPlan
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.inspectors import Inspector
from jackfield.core.testing.oracle import Question, expected

Key = tuple[str, int]
STEPS_PER_TOKEN = 8
SPARE_STEPS = 200


class Before(NamedTuple):
    """A running request as it was before a step."""

    request: Request
    computed: int
    preemptions: int
    mark: int
    needs_block: bool


@dataclass(slots=True)
class Progress:
    """What came back of one answer, and what should: an advisor may still make it shorter."""

    answer: list[int]
    finish: FinishReason
    request: Request
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    aborted: bool = False


class Watch:
    """Adds, aborts and steps as told. Every method raises `AssertionError` when a law is broken.

    may_reject: an advisor of the engine refuses requests, so that an error may end them.
    inspectors: look at each step too. plan: what the last step submitted; None = nothing.
    """

    def __init__(
        self,
        engine: Engine,
        sizes: Sizes,
        executor: FakeExecutor,
        clock: ManualClock,
        *,
        vocab_size: int,
        may_reject: bool = False,
    ) -> None:
        self.engine = engine
        self.answers: dict[Key, Progress] = {}
        self.trace: list[str] = []
        self.inspectors: list[Inspector] = []
        self.plan: StepPlan | None = None
        self._sizes = sizes
        self._executor = executor
        self._clock = clock
        self._vocab_size = vocab_size
        self._may_reject = may_reject
        self._work = 0

    @property
    def now(self) -> float:
        """The engine's clock."""
        return self._clock.now()

    def add(self, new: NewRequest, eos_ids: frozenset[int] = frozenset()) -> None:
        """Hand over a request that fits, and know its answers beforehand."""
        self.engine.add(new)
        for request in self.engine._requests[new.id]:
            question = self._question(new, request, eos_ids)
            answer, finish = expected(question)
            self.answers[(new.id, request.index)] = Progress(answer, finish, request)
            self._work += len(new.prompt) + len(answer) + 1

    def _question(self, new: NewRequest, request: Request, eos: frozenset[int]) -> Question:
        params = new.params
        stops = set() if params.ignore_eos else set(eos)
        return Question(
            prompt=list(new.prompt),
            max_tokens=request.max_tokens,
            vocab_size=self._vocab_size,
            seed=0 if params.greedy else request.seed,
            ends=stops | set(params.stop_token_ids or ()),
            min_tokens=params.min_tokens,
            banned=new.banned_sequences,
        )

    def abort(self, request_id: str, index: int | None = None) -> None:
        """End answers early; what they gave so far must still be right."""
        for (name, number), progress in self.answers.items():
            if name == request_id and index in (None, number) and not progress.ended:
                progress.aborted = True
        self.engine.abort(request_id, index)
        self.engine.check()

    def step(self) -> None:
        """One step of the engine and all checks."""
        for inspector in self.inspectors:
            inspector.before(self)
        before = self._running()
        last = self._executor.last_plan
        busy = self._sizes.overlap == 0 and (before or self._somebody_may_be_admitted())
        for delta in self.engine.step():
            self._absorb(delta)
        self.engine.check()
        self._check_preemptions(before)
        self._check_tenants()
        plan = self._executor.last_plan
        self.plan = plan if plan is not last else None
        for inspector in self.inspectors:
            inspector.after(self)
        if plan is last and busy and not self._may_be_empty():
            raise AssertionError("somebody could run, and the step was empty")
        if plan is not None and plan is not last:
            assert plan.num_tokens <= self._sizes.max_tokens, "the step is too large"
            assert len(plan.slices) <= self._sizes.max_seqs, "too many sequences in a step"
            self.trace.append(repr((plan.number, plan.slices, plan.joins, plan.blocks)))

    def _may_be_empty(self) -> bool:
        """Whether somebody could run, but had better wait."""
        return False

    def _somebody_may_be_admitted(self) -> bool:
        return self.engine.lifecycle.tree.head(self._clock.now()) is not None

    def _running(self) -> dict[int, Before]:
        size = self._sizes.block_size
        return {
            handle: Before(
                request,
                request.computed,
                request.num_preemptions,
                request.progress_mark,
                request.fed == request.computed >= len(request.blocks) * size,
            )
            for handle, request in self.engine.lifecycle.planner.running.items()
        }

    def _absorb(self, delta: Delta) -> None:
        progress = self.answers[(delta.id, delta.index)]
        assert not progress.ended, f"{delta.id} has news after its end"
        progress.tokens.extend(delta.tokens)
        right = progress.answer[: len(progress.tokens)]
        assert progress.tokens == right, f"{delta.id} got {progress.tokens}, should be {right}"
        if delta.finish is not None:
            progress.ended = True
            self._check_end(delta, progress)

    def _check_end(self, delta: Delta, progress: Progress) -> None:
        if delta.finish is FinishReason.ABORT:
            assert progress.aborted, f"{delta.id} ended as if it had been aborted"
        elif delta.finish is FinishReason.ERROR:
            assert self._may_reject, f"{delta.id} failed: {delta.error}"
            assert delta.error, f"{delta.id} failed without a reason"
        else:
            most = progress.request.max_tokens
            if most < len(progress.answer):
                progress.answer, progress.finish = progress.answer[:most], FinishReason.LENGTH
            assert progress.tokens == progress.answer, f"{delta.id} ended too early"
            assert delta.finish is progress.finish, f"{delta.id} ended as {delta.finish}"

    def _check_preemptions(self, before: Mapping[int, Before]) -> None:
        if not before:
            return
        oldest = min(before)
        for handle, old in before.items():
            lost = old.request.num_preemptions - old.preemptions
            assert lost in (0, 1), f"{old.request.id} was preempted twice in a step"
            if lost:
                assert handle != oldest, f"{old.request.id} is the oldest and was preempted"
                progressed = not old.preemptions or old.computed >= old.mark
                assert progressed or before[oldest].needs_block, "preempted without progress"

    def _check_tenants(self) -> None:
        owners: dict[int, Request] = {}
        for request in self.engine.lifecycle.planner.running.values():
            for block in request.blocks:
                other = owners.setdefault(block, request)
                assert other is request or self._may_share(other, request, block), (
                    f"{other.id} and {request.id} share a block and may not"
                )

    def _may_share(self, first: Request, second: Request, block: int) -> bool:
        one_group = first.group is second.group is not None
        return one_group and first.context.tenant == second.context.tenant

    def drain(self) -> None:
        """Step, and let time pass where only time helps, until all have ended; then `idle`."""
        limit = SPARE_STEPS + STEPS_PER_TOKEN * self._work
        for _ in range(limit):
            if not self.engine.has_work:
                self.idle()
                return
            if self.engine.is_idle and self.engine.next_alarm is not None:
                self._clock.advance(max(self.engine.next_alarm - self._clock.now(), 0.0))
            self.step()
        raise AssertionError(f"not everybody has ended after {limit} steps")

    def idle(self) -> None:
        """Nobody is left: everybody ended once, and everything is as it was at the start."""
        assert all(progress.ended for progress in self.answers.values()), "an answer has no end"
        lifecycle = self.engine.lifecycle
        pool, planner = lifecycle.planner.pool, lifecycle.planner
        assert pool.num_free == pool.num_blocks, "blocks are lost"
        assert planner.seats_left == self._sizes.max_seqs, "seats are lost"
        assert not planner.running and not len(lifecycle.tree) and not len(lifecycle.gates)
        assert lifecycle.valve.num_tokens == 0 and not lifecycle.valve.requests()
        assert sum(lifecycle.metrics.finished.values()) == len(self.answers)
        for inspector in self.inspectors:
            inspector.end(self)
