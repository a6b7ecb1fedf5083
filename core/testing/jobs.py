"""Jobs on the real loop with a clock of its own: what disciplines make of a load."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from jackfield.core.api import RequestContext, SamplingParams
from jackfield.core.bench.null_executor import NullExecutor
from jackfield.core.engine.messages import Delta, NewRequest
from jackfield.core.engine.request import Request, Status
from jackfield.core.engine.services import Services
from jackfield.core.engine.steps import StepPlan
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, context_for, make_engine
from jackfield.core.testing.stacks import Factory, build

ROOMY = Sizes(
    num_blocks=1000, block_size=16, max_tokens=256, max_seqs=8, max_model_len=4096, share=0.0
)
"""Memory is no limit, and the starvation valve is off."""
EVERYBODY = RequestContext()


class Job(NamedTuple):
    """A request that arrives at a time: so many tokens in and out."""

    at: float
    prompt: int
    answer: int
    context: RequestContext = EVERYBODY
    id: str = ""


@dataclass(slots=True)
class Record:
    """What became of a job, in seconds of the simulated clock; None = it has not."""

    job: Job
    request: Request
    admitted: float | None = None
    first_token: float | None = None
    ended: float | None = None

    @property
    def waited(self) -> float:
        """Seconds until it got its first seat. Only of who got one."""
        assert self.admitted is not None, f"{self.request.id} waits"
        return self.admitted - self.job.at

    @property
    def delay(self) -> float:
        """Seconds until its first token. Only of who has one."""
        assert self.first_token is not None, f"{self.request.id} has no token"
        return self.first_token - self.job.at

    @property
    def seconds(self) -> float:
        """From arrival to end. Only of who has ended."""
        assert self.ended is not None, f"{self.request.id} has not ended"
        return self.ended - self.job.at


class _Counting(NullExecutor):
    """Knows how many positions the last step had."""

    last: StepPlan | None = None

    def forward(self, plan: StepPlan) -> StepPlan:
        self.last = plan
        return plan


class Simulation:
    """An engine under given policies. A step takes a fixed time, and some for each position.

    `records` holds every job that has arrived, by id; jobs without an id are numbered. Times are
    exact only if no step is in flight while the next is planned.
    """

    def __init__(
        self,
        policies: Factory,
        sizes: Sizes = ROOMY,
        *,
        step_seconds: float = 0.001,
        token_seconds: float = 0.0001,
    ) -> None:
        self.clock = ManualClock()
        self.records: dict[str, Record] = {}
        services = Services()
        stack = build(policies, context_for(sizes, self.clock, services))
        self._executor = _Counting()
        self.engine = make_engine(
            replace(sizes, hook_budget=60.0),
            disciplines=stack.disciplines,
            advisors=stack.advisors,
            executor=self._executor,
            clock=self.clock,
            services=services,
        )
        self._count = 0
        self._step_seconds = step_seconds
        self._token_seconds = token_seconds

    def add(self, job: Job) -> Record:
        """The job arrives now, whatever its time says."""
        name = job.id or f"job-{self._count}"
        self._count += 1
        params = SamplingParams(temperature=0.0, max_tokens=job.answer, ignore_eos=True)
        self.engine.add(NewRequest(name, [1] * job.prompt, params, job.context))
        (request,) = self.engine._requests[name]
        record = self.records[name] = Record(job._replace(at=self.clock.now()), request)
        return record

    def step(self) -> None:
        """One step. An empty one takes time, too."""
        self._executor.last = None
        deltas = self.engine.step()
        for request in self.running:
            self._admitted(self.records[request.id])
        plan = self._executor.last
        tokens = 0 if plan is None else plan.num_tokens
        self.clock.advance(self._step_seconds + self._token_seconds * tokens)
        for delta in deltas:
            self._note(delta)

    def _admitted(self, record: Record) -> None:
        if record.admitted is None:
            record.admitted = record.request.admitted_at

    def _note(self, delta: Delta) -> None:
        record = self.records[delta.id]
        self._admitted(record)
        if delta.tokens and record.first_token is None:
            record.first_token = self.clock.now()
        if delta.finish is not None:
            record.ended = self.clock.now()

    def run(self, jobs: Iterable[Job], max_steps: int = 100_000) -> list[Record]:
        """All jobs at their times, until all have ended; records in the order of arrival.

        Raises `AssertionError` if they do not end, or a policy was at fault.
        """
        pending = sorted(jobs, key=lambda job: job.at)[::-1]
        first = len(self.records)
        for _ in range(max_steps):
            while pending and pending[-1].at <= self.clock.now():
                self.add(pending.pop())
            if self.engine.has_work:
                self.step()
            elif pending:
                self.clock.advance(pending[-1].at - self.clock.now())
            else:
                assert not self.engine.fault_counts(), self.engine.faults()
                return list(self.records.values())[first:]
        raise AssertionError(f"not everybody has ended after {max_steps} steps")

    @property
    def running(self) -> list[Request]:
        """Who holds a seat, in order of admission."""
        return list(self.engine.lifecycle.planner.running.values())

    @property
    def waiting(self) -> list[Request]:
        """Who waits for one, by arrival; who has just arrived, too."""
        requests = (record.request for record in self.records.values())
        return [one for one in requests if one.status in (Status.NEW, Status.WAITING)]
