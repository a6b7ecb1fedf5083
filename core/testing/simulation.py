"""A machine whose steps take a known time, and whole loads of requests on it, by its own clock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jackfield.core.api import Discipline, FinishReason, PolicyContext, RequestContext
from jackfield.core.bench.null_executor import NullExecutor
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.messages import Delta, Rejection
from jackfield.core.engine.services import Services
from jackfield.core.engine.steps import StepPlan, StepResult
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request

Advisors = Callable[[PolicyContext], Mapping[str, Any]]
Disciplines = Callable[[PolicyContext], Sequence[Discipline[Any]]]


class Machine(NamedTuple):
    """Seconds of a step: fixed, and for each decode, position attended to, and prompt token."""

    fixed: float = 5e-3
    decode: float = 2e-5
    context: float = 1e-8
    prefill: float = 4e-5

    def seconds(self, decodes: int, context: int, prefill: int) -> float:
        """What a step takes."""
        return self.fixed + self.decode * decodes + self.context * context + self.prefill * prefill


class Ran(NamedTuple):
    """One step. handles: whose tokens were sampled."""

    seconds: float
    decodes: int
    prefill: int
    handles: frozenset[int]


class TimedExecutor(NullExecutor):
    """Computes nothing, but steps take their time, one after another; `steps` is what ran."""

    def __init__(self, clock: ManualClock, machine: Machine | None = None) -> None:
        self._clock = clock
        self._machine = machine or Machine()
        self._ready = 0.0
        self._ends: dict[int, float] = {}
        self.steps: list[Ran] = []

    def forward(self, plan: StepPlan) -> StepPlan:
        """The step begins when the one before has ended."""
        decodes = plan.num_decodes
        context = sum(part.start for part in plan.slices[:decodes])
        prefill = plan.num_tokens - decodes
        seconds = self._machine.seconds(decodes, context, prefill)
        handles = frozenset(part.handle for part in plan.slices if part.samples)
        self.steps.append(Ran(seconds, decodes, prefill, handles))
        self._ready = max(self._ready, self._clock.now()) + seconds
        self._ends[plan.number] = self._ready
        return plan

    def collect(self, ticket: StepPlan) -> StepResult:
        """The clock moves to the end of the step."""
        self._clock.advance(max(self._ends.pop(ticket.number) - self._clock.now(), 0.0))
        return super().collect(ticket)


class Job(NamedTuple):
    """A request that comes at a time, in seconds, and ends by itself after `answer` tokens.

    max_tokens: what it asks for; None = exactly those.
    """

    at: float
    prompt: int
    answer: int
    max_tokens: int | None = None
    context: RequestContext = RequestContext()


@dataclass(slots=True)
class Course:
    """What became of one job. added: when the engine heard of it, which is between steps. times:
    of each token, in seconds."""

    job: Job
    added: float = 0.0
    times: list[float] = field(default_factory=list)
    ended: float | None = None
    rejection: Rejection | None = None

    @property
    def first_token(self) -> float:
        """Seconds since the engine heard of it; infinity if it has none."""
        return self.times[0] - self.added if self.times else float("inf")


class Simulation:
    """One engine on one machine. `run` gives it jobs and time until all of them have ended."""

    def __init__(
        self,
        sizes: Sizes,
        *,
        advisors: Advisors | None = None,
        disciplines: Disciplines | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.executor = TimedExecutor(self.clock, machine)
        services = Services()
        context = context_for(sizes, self.clock, services)
        self.engine: Engine = make_engine(
            sizes,
            disciplines=disciplines(context) if disciplines else (),
            advisors=advisors(context) if advisors else None,
            executor=self.executor,
            clock=self.clock,
            services=services,
        )

    def run(self, jobs: Sequence[Job]) -> list[Course]:
        """In the order of the jobs. Raises `AssertionError` when nothing moves any more."""
        courses = [Course(job) for job in jobs]
        coming = sorted(range(len(jobs)), key=lambda index: (-jobs[index].at, -index))
        while coming or self.engine.has_work:
            self._arrivals(coming, courses)
            before = len(self.executor.steps)
            deltas = self.engine.step()
            for delta in deltas:
                self._note(delta, courses[int(delta.id)])
            if not deltas and len(self.executor.steps) == before and not self.engine._in_flight:
                self._sleep(coming, courses)
        return courses

    def _arrivals(self, coming: list[int], courses: Sequence[Course]) -> None:
        while coming and courses[coming[-1]].job.at <= self.clock.now():
            index = coming.pop()
            job = courses[index].job
            courses[index].added = self.clock.now()
            most = job.answer if job.max_tokens is None else job.max_tokens
            params = GREEDY.with_(max_tokens=most, ignore_eos=True)
            self.engine.add(request(str(index), [1] * job.prompt, params, context=job.context))

    def _note(self, delta: Delta, course: Course) -> None:
        course.times += [self.clock.now()] * len(delta.tokens)
        if delta.finish is not None:
            course.ended, course.rejection = self.clock.now(), delta.rejection
        elif len(course.times) >= course.job.answer:
            self.engine.abort(delta.id, finish=FinishReason.STOP)

    def _sleep(self, coming: Sequence[int], courses: Sequence[Course]) -> None:
        alarms = [courses[coming[-1]].job.at] if coming else []
        if self.engine.next_alarm is not None:
            alarms.append(self.engine.next_alarm)
        assert alarms or not self.engine.has_work, "there is work, but nothing will ever move"
        if alarms:
            self.clock.advance(max(min(alarms) - self.clock.now(), 0.0))
