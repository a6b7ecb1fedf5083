"""When classes are charged: at every step, or, where work adds up, before it can matter."""

from typing import Any, ClassVar

import pytest

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    RequestContext,
    RequestView,
    SamplingParams,
    Work,
)
from jackfield.core.engine.billing import MOST_UNCHARGED
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.level import Level
from jackfield.core.engine.messages import NewRequest
from jackfield.core.engine.rank import LAST
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, make_engine

LONG = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)


class Shares(Discipline[float]):
    """Counts tokens by tenant, and what it is asked in which order."""

    def __init__(self, *_: Any) -> None:
        super().__init__(PolicyConfig(), None)  # type: ignore[arg-type]
        self.bills: list[tuple[str, Work]] = []
        self.asked: list[str] = []

    def classify(self, request: RequestView) -> str:
        return request.context.tenant

    def charge(self, cls: ClassState[float], work: Work) -> None:
        self.bills.append((str(cls.key), work))
        self.asked.append(f"charge {cls.key}")
        cls.state = (cls.state or 0.0) + work.prefill + work.decode

    def rank(self, cls: ClassState[float], now: float) -> float:
        self.asked.append(f"rank {cls.key}")
        return cls.state or 0.0

    def left(self, cls: ClassState[float], request: RequestView) -> None:
        self.asked.append(f"left {cls.key}")


class Patient(Shares):
    adds_up: ClassVar[bool] = True


def run(policy: Shares, steps: int, tenants: str = "abc") -> Any:
    """Requests 0, 1, ... of these tenants; two run."""
    engine = make_engine(Sizes(max_seqs=2), clock=ManualClock(), disciplines=[policy])
    for number, tenant in enumerate(tenants):
        engine.add(NewRequest(str(number), [1, 2, 3], LONG, RequestContext(tenant=tenant)))
    for _ in range(steps):
        engine.step()
    return engine


def test_every_class_is_charged_at_every_step() -> None:
    policy = Shares()
    run(policy, 4)
    assert policy.bills.count(("a", Work(decode=1))) == 3
    assert policy.bills.count(("a", Work(prefill=3))) == 1


@pytest.mark.parametrize("kind", [Shares, Patient])
def test_all_work_is_charged_once(kind: type[Shares]) -> None:
    policy = kind()
    engine = run(policy, 30)
    engine.lifecycle.tree.settle()
    total = Work()
    for tenant, work in policy.bills:
        total = total.plus(work) if tenant == "a" else total
    assert (total.prefill, total.decode) == (3, 29)


def test_work_that_adds_up_is_charged_together_and_in_time() -> None:
    policy = Patient()
    run(policy, 4 * MOST_UNCHARGED)
    of_a = [work for tenant, work in policy.bills if tenant == "a"]
    assert len(of_a) == 4
    assert max(work.decode for work in of_a) == MOST_UNCHARGED


@pytest.mark.parametrize("tenants", ["abc", "aac"])
def test_nothing_is_told_of_a_class_that_owes(tenants: str) -> None:
    """Neither of one that loses its last request, nor of one that goes on."""
    policy = Patient()
    engine = run(policy, MOST_UNCHARGED + 3, tenants)
    policy.asked.clear()
    engine.abort("0")
    engine.step()
    of_a = [asked for asked in policy.asked if asked.endswith(" a")]
    assert of_a.index("charge a") < of_a.index("left a")


def test_a_class_that_becomes_idle_owes_nothing() -> None:
    """Its state tells the next class that comes back where the others are."""

    class Plain(Patient):
        left = Discipline.left

    policy = Plain()
    engine = run(policy, MOST_UNCHARGED + 3)
    policy.asked.clear()
    engine.abort("0")
    engine.step()
    assert "charge a" in policy.asked


def test_ranks_of_another_width_are_a_fault_also_when_many_are_asked() -> None:
    class Wider(Shares):
        width = 1

        def rank(self, cls: ClassState[float], now: float) -> tuple[float, ...]:  # type: ignore[override]
            return (0.0,) * self.width

    policy, guard = Wider(), Guard("wider", 9, 1.0)
    level = Level("wider", policy, guard)
    classes = [ClassState[float](name) for name in "abc"]
    assert level.ranks_of(classes, 0.0) == [(0.0,)] * 3 and guard.faults == 0
    policy.width = 2
    assert level.ranks_of(classes, 0.0) == [LAST] * 3
    assert guard.faults == 3
    assert guard.last_fault == "rank returned 2 numbers, before 1"
