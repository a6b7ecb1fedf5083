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
from jackfield.core.engine.messages import NewRequest
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


def run(policy: Shares, steps: int) -> Any:
    engine = make_engine(Sizes(max_seqs=2), clock=ManualClock(), disciplines=[policy])
    for name in ("a", "b", "c"):
        engine.add(NewRequest(name, [1, 2, 3], LONG, RequestContext(tenant=name)))
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


def test_nothing_is_told_of_a_class_that_owes() -> None:
    policy = Patient()
    engine = run(policy, MOST_UNCHARGED + 3)
    policy.asked.clear()
    engine.abort("a")
    engine.step()
    of_a = [asked for asked in policy.asked if asked.endswith(" a")]
    assert of_a.index("charge a") < of_a.index("left a")
