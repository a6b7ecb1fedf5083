"""The fitted time of a step against machines whose law is known."""

from random import Random

import pytest

from jackfield.core.engine.services import Services
from jackfield.core.engine.step_model import LEAST_STEPS, SIZE, UNLIMITED, StepModel, non_negative
from jackfield.core.engine.steps import StepPlan, StepResult
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, context_for, make_engine, request, run
from jackfield.core.testing.fake_executor import FakeExecutor, Ticket

MACHINES = [
    (5e-3, 2e-5, 1e-8, 4e-5),
    (2e-3, 0.0, 5e-8, 1e-4),
    (0.0, 1e-3, 0.0, 2e-3),
    (3e-2, 1e-5, 2e-7, 0.0),
]
Machine = tuple[float, float, float, float]


def seconds(machine: Machine, decodes: int, context: int, prefill: int) -> float:
    return machine[0] + machine[1] * decodes + machine[2] * context + machine[3] * prefill


def a_step(random: Random) -> tuple[int, int, int]:
    decodes = random.randrange(257)
    prefill = random.choice((0, 0, 0, 32, 512, 2000)) if decodes else 512
    return decodes, decodes * random.randrange(100, 3000), prefill


def fed(
    machine: Machine, steps: int = 400, noise: float = 0.05, outliers: float = 0.0
) -> StepModel:
    random, model = Random(1), StepModel()
    feed(model, machine, random, steps, noise, outliers)
    return model


def feed(
    model: StepModel, machine: Machine, random: Random, steps: int, noise: float, outliers: float
) -> None:
    for _ in range(steps):
        step = a_step(random)
        factor = random.gauss(1.0, noise)
        if random.random() < outliers:
            factor *= random.choice((5, 20, 100))
        model.add(seconds(machine, *step) * max(factor, 0.5), *step)


def worst_error(model: StepModel, machine: Machine) -> float:
    random, errors = Random(2), []
    for _ in range(200):
        step = a_step(random)
        found = model.step_seconds(*step)
        assert found is not None
        errors.append(abs(found / seconds(machine, *step) - 1))
    return max(errors)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_is_learnt_within_ten_percent(machine: Machine) -> None:
    assert worst_error(fed(machine), machine) < 0.1


@pytest.mark.parametrize("machine", MACHINES)
def test_outliers_do_not_matter(machine: Machine) -> None:
    """One step in 25 takes up to a hundred times as long, from the start."""
    assert worst_error(fed(machine, outliers=0.04), machine) < 0.1


@pytest.mark.parametrize("machine", MACHINES)
def test_without_noise_it_is_exact_after_few_steps(machine: Machine) -> None:
    assert worst_error(fed(machine, 4 * LEAST_STEPS, noise=0.0), machine) < 0.01


def test_a_machine_that_changes_is_learnt_anew() -> None:
    model, random = StepModel(), Random(1)
    slow: Machine = (2e-2, 1e-4, 1e-7, 4e-4)
    feed(model, MACHINES[0], random, 300, 0.05, 0.0)
    feed(model, slow, random, 1500, 0.05, 0.0)
    assert worst_error(model, slow) < 0.1


def test_what_was_learnt_of_prompts_stays_while_only_decodes_run() -> None:
    model = fed(MACHINES[0])
    for _ in range(5000):
        model.add(seconds(MACHINES[0], 64, 64_000, 0), 64, 64_000, 0)
    found = model.step_seconds(64, 64_000, 512)
    assert found == pytest.approx(seconds(MACHINES[0], 64, 64_000, 512), rel=0.1)


def test_nothing_is_said_before_enough_steps() -> None:
    model = fed(MACHINES[0], LEAST_STEPS - 1)
    assert not model.wanted
    assert model.step_seconds(1, 1, 1) is None and model.tokens_within(1.0, 1, 1) is None
    assert model.wanted
    model.add(0.0, 1, 1, 1)
    assert model.step_seconds(1, 1, 1) is None, "a step without a duration is none"
    model.add(5e-3, 1, 1, 1)
    assert model.step_seconds(1, 1, 1) is not None


@pytest.mark.parametrize("limit", [6e-3, 0.02, 0.5])
def test_tokens_within_is_the_inverse(limit: float) -> None:
    model = fed(MACHINES[0])
    tokens = model.tokens_within(limit, 10, 1000)
    assert tokens is not None and tokens > 0
    inside, outside = (model.step_seconds(10, 1000, n) for n in (tokens, tokens + 1))
    assert inside is not None and outside is not None
    assert inside <= limit * (1 + 1e-9) and outside > limit * (1 - 1e-9)
    assert model.tokens_within(1e-4, 10, 1000) == 0


def test_prompts_that_cost_nothing_have_no_limit() -> None:
    assert fed(MACHINES[3], noise=0.0).tokens_within(1.0, 1, 1) in range(10**6, UNLIMITED + 1)


def test_coefficients_are_never_negative() -> None:
    random = Random(3)
    for _ in range(200):
        rows = [[random.random() for _ in range(SIZE)] for _ in range(6)]
        right = [random.gauss(0, 1) for _ in rows]
        square = [[sum(r[i] * r[j] for r in rows) for j in range(SIZE)] for i in range(SIZE)]
        product = [sum(r[i] * y for r, y in zip(rows, right, strict=True)) for i in range(SIZE)]
        assert all(value >= 0 for value in non_negative(square, product, None))


class TimedExecutor(FakeExecutor):
    """Steps of a known duration, one after another, on the clock of the test."""

    def __init__(self, clock: ManualClock, machine: Machine) -> None:
        super().__init__(4)
        self._clock = clock
        self._machine = machine
        self._ready = 0.0
        self._ends: dict[int, float] = {}

    def forward(self, plan: StepPlan) -> Ticket:
        ticket = super().forward(plan)
        context = sum(part.start for part in plan.slices[: plan.num_decodes])
        prefill = plan.num_tokens - plan.num_decodes
        duration = seconds(self._machine, plan.num_decodes, context, prefill)
        self._ready = max(self._ready, self._clock.now()) + duration
        self._ends[plan.number] = self._ready
        return ticket

    def collect(self, ticket: Ticket) -> StepResult:
        self._clock.advance(max(self._ends[ticket.plan.number] - self._clock.now(), 0.0))
        return super().collect(ticket)


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_an_engine_learns_its_steps_by_its_own_clock(overlap: int) -> None:
    machine = (1e-2, 1e-3, 1e-5, 1e-3)
    sizes = Sizes(num_blocks=64, max_seqs=6, max_tokens=32, overlap=overlap)
    clock, services = ManualClock(), Services()
    predict = context_for(sizes, clock, services).predict
    assert predict.step_seconds(1, 1, 1) is None
    executor = TimedExecutor(clock, machine)
    engine = make_engine(sizes, clock=clock, services=services, executor=executor)
    random = Random(0)
    for number in range(60):
        params = GREEDY.with_(max_tokens=random.randint(1, 12))
        engine.add(request(f"r{number}", [1] * random.randint(1, 30), params))
    run(engine)
    for step in ((1, 10, 0), (5, 100, 20), (6, 60, 8)):
        found = predict.step_seconds(*step)
        assert found == pytest.approx(seconds(machine, *step), rel=0.1)
