"""Time of planning alone: the scheduler stack of a configuration, without a model."""

from dataclasses import asdict, dataclass
from random import Random
from typing import Any, NamedTuple

from jackfield.core.api import ConfigError, RequestContext, SamplingParams
from jackfield.core.assemble import policies
from jackfield.core.bench.null_executor import NullExecutor
from jackfield.core.bench.provenance import stack_names, versions
from jackfield.core.bench.unloaded import BLOCK_SIZE, unloaded
from jackfield.core.engine.clock import SystemClock
from jackfield.core.engine.loop import Engine, EngineSettings
from jackfield.core.engine.messages import Delta, NewRequest
from jackfield.core.engine.planner import Limits
from jackfield.core.host.sources import Resolved

PROMPT = [1] * 20
SHORTEST, LONGEST = 50, 150
CONTEXT = 4096
STEP_TOKENS = 2048
TENANTS = 64
WARM_STEPS = 20


class Crowd(NamedTuple):
    """How many run and wait all the time, and how many steps are measured."""

    running: int = 256
    waiting: int = 10_000
    steps: int = 300


@dataclass(frozen=True, slots=True)
class Planning:
    """Microseconds of planning one step. running, waiting: as they were at the end."""

    steps: int
    running: int
    waiting: int
    admissions: int
    planning_us_p50: float
    planning_us_p99: float
    stack: dict[str, list[str]]
    faults: dict[str, str]
    versions: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_planning(resolved: Resolved, crowd: Crowd) -> Planning:
    """Plan `crowd.steps` steps. Who ends is replaced, so the crowd stays as it is.

    Requests come from 64 tenants and answer 50 to 150 tokens. Raises `ConfigError`.
    """
    for name, value, least in zip(Crowd._fields, crowd, (1, 0, 1), strict=True):
        if value < least:
            raise ConfigError(f"{name} is {value}; it must be at least {least}")
    engine = _engine(resolved, crowd.running)
    arrivals = Arrivals(engine)
    for _ in range(crowd.running + crowd.waiting):
        arrivals.add()
    warm = WARM_STEPS + crowd.running * len(PROMPT) // STEP_TOKENS
    _steps(engine, arrivals, warm)
    metrics = engine.metrics
    metrics.planning.clear()
    admissions = metrics.admissions
    _steps(engine, arrivals, crowd.steps)
    return Planning(
        steps=crowd.steps,
        running=len(engine.lifecycle.planner.running),
        waiting=len(engine.lifecycle.tree),
        admissions=metrics.admissions - admissions,
        planning_us_p50=round(metrics.planning.quantile(0.5) * 1e6, 1),
        planning_us_p99=round(metrics.planning.quantile(0.99) * 1e6, 1),
        stack=stack_names(resolved.config.model_dump()),
        faults=engine.faults(),
        versions=versions(),
    )


class Arrivals:
    """Requests of many tenants, the same ones each time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._random = Random(0)
        self._count = 0

    def add(self) -> None:
        """One more request."""
        length = self._random.randint(SHORTEST, LONGEST)
        params = SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True)
        tenant = f"tenant-{self._random.randrange(TENANTS)}"
        context = RequestContext(tenant=tenant, priority=self._random.randrange(3))
        self._engine.add(NewRequest(f"request-{self._count}", PROMPT, params, context))
        self._count += 1

    def replace(self, deltas: list[Delta]) -> None:
        """One request for each that ended."""
        for delta in deltas:
            if delta.finish is not None:
                self.add()


def _steps(engine: Engine, arrivals: Arrivals, count: int) -> None:
    for _ in range(count):
        arrivals.replace(engine.step())


def _engine(resolved: Resolved, running: int) -> Engine:
    config = resolved.config
    limits = Limits(max(STEP_TOKENS, running), running, CONTEXT)
    blocks = running * -(-(len(PROMPT) + LONGEST) // BLOCK_SIZE + 1)
    clock = SystemClock()
    parts = unloaded(resolved, limits, clock, blocks)
    settings = EngineSettings(
        limits,
        vocab_size=CONTEXT,
        starvation_share=config.engine.starvation_share,
        park_timeout=config.engine.park_timeout,
        decision_log=config.engine.decision_log,
        seed=config.model.seed,
        class_idle_seconds=config.engine.class_idle_seconds,
        max_classes=config.engine.max_classes,
    )
    decided = policies(config, parts.stack, parts.services, parts.guards)
    return Engine(settings, decided, parts.memory, NullExecutor(), clock)
