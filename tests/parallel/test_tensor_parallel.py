"""What the first rank tells the others, and when."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from jackfield.core.api import EngineStoppedError, SamplingParams
from jackfield.core.engine.runner import Ticket
from jackfield.core.engine.steps import Join, Slice, StepPlan
from jackfield.core.executors.tensor_parallel import TensorParallel
from jackfield.core.kv.transfers import Transfer, TransferEnd, TransferKind
from jackfield.core.wire.plan import Plan, Sample
from jackfield.core.wire.ranks import Copy, decode_order

PARAMS = SamplingParams()


class Others:
    """They do nothing, and remember everything."""

    size = 2

    def __init__(self) -> None:
        self.failure: str | None = None
        self.told: list[Any] = []
        self.done: list[tuple[str, Any]] = []
        self.alike = True
        self.ends: Callable[[int, Sequence[TransferEnd]], None]
        self.gives_up: Sequence[Collection[int]] = [()]

    def send(self, message: bytes) -> None:
        self.told.append(decode_order(message))

    def begun(self, step: int) -> None:
        self.done.append(("begun", step))

    def passed(self, step: int) -> None:
        self.done.append(("passed", step))

    def stumbled(self, step: int) -> None:
        self.done.append(("stumbled", step))
        if not self.alike:
            raise EngineStoppedError("they differ")

    def fail(self, reason: str) -> None:
        self.failure = reason

    def cancel(self, numbers: Sequence[int]) -> Sequence[Collection[int]]:
        return self.gives_up

    def hear_ends(self, listener: Callable[[int, Sequence[TransferEnd]], None]) -> None:
        self.ends = listener

    def diagnose(self, limit: float) -> str:
        return "they hang"

    def stop(self) -> None:
        self.done.append(("stop", None))

    def close(self, drop: Callable[[], None]) -> None:
        self.done.append(("close", None))
        drop()


class Inner:
    """A device that computes nothing."""

    default_overlap = 1

    def __init__(self, others: Others) -> None:
        self._others = others
        self.error: BaseException | None = None
        self.told_before: list[int] = []

    def forward(self, plan: StepPlan) -> Ticket:
        self.told_before.append(len(self._others.told))
        if self.error is not None:
            raise self.error
        return Ticket(plan, plan.slices, None, None)

    def sample(self, ticket: Ticket, late: Any) -> None:
        if self.error is not None:
            raise self.error

    def transfer(self, orders: Sequence[Transfer]) -> None: ...

    def cancel_transfers(self, numbers: Sequence[int]) -> Sequence[int]:
        return numbers

    def close(self) -> None:
        self._others.done.append(("inner", None))


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def inner(others: Others) -> Inner:
    return Inner(others)


@pytest.fixture
def ranks(others: Others, inner: Inner) -> TensorParallel:
    return TensorParallel(inner, others, has_tiers=False)  # type: ignore[arg-type]


def plan(number: int, *seats: int, **changes: Any) -> StepPlan:
    parts = [Slice(100 + seat, seat, 5, 1, None, 1, False) for seat in seats]
    return StepPlan(number, parts, len(parts), **changes)


def join(seat: int, *, late: bool) -> Join:
    return Join(seat, 100 + seat, PARAMS, 0, (1,), (), frozenset(), (), late)


def test_the_others_are_told_first_and_once(
    ranks: TensorParallel, others: Others, inner: Inner
) -> None:
    ranks.sample(ranks.forward(plan(3, 0, 1)), {})
    (told,) = others.told
    assert isinstance(told, Plan) and not told.waits and told.number == 3
    assert inner.told_before == [1]
    assert others.done == [("begun", 3), ("passed", 3)]


def test_who_may_be_told_late_is_waited_for(ranks: TensorParallel, others: Others) -> None:
    joins = [join(0, late=False), join(1, late=True)]
    ranks.sample(ranks.forward(plan(1, 0, 1, joins=joins)), {101: [7]})
    assert others.told[0].waits and others.told[1] == Sample({1: [7]})
    ranks.sample(ranks.forward(plan(2, 1)), {})
    assert others.told[3] == Sample({})
    ranks.sample(ranks.forward(plan(3, 0)), {})
    assert not others.told[4].waits and len(others.told) == 5
    ranks.forward(plan(4, 1, leaves=[1], joins=[join(1, late=False)]))
    assert not others.told[5].waits


def test_an_error_of_all_is_that_of_the_step(
    ranks: TensorParallel, others: Others, inner: Inner
) -> None:
    inner.error = ValueError("no memory")
    with pytest.raises(ValueError, match="no memory"):
        ranks.forward(plan(1, 0))
    others.alike = False
    with pytest.raises(EngineStoppedError, match="they differ"):
        ranks.forward(plan(2, 0))
    assert [what for what, _ in others.done].count("stumbled") == 2


@pytest.mark.parametrize("part", ["forward", "sample"])
def test_who_interrupts_a_step_ends_all(
    ranks: TensorParallel, others: Others, inner: Inner, part: str
) -> None:
    ticket = ranks.forward(plan(1, 0))
    inner.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        ranks.forward(plan(2, 0)) if part == "forward" else ranks.sample(ticket, {})
    inner.error = None
    with pytest.raises(EngineStoppedError, match=r"step \d was interrupted on rank 0"):
        ranks.forward(plan(3, 0))


def test_after_a_failure_nothing_is_computed(
    ranks: TensorParallel, others: Others, inner: Inner
) -> None:
    ticket = ranks.forward(plan(1, 0))
    others.failure = "rank 1 is gone"
    for call in (
        lambda: ranks.forward(plan(2, 0)), lambda: ranks.sample(ticket, {}),
        lambda: ranks.collect(ticket), lambda: ranks.logits(plan(3, 0)),
    ):  # fmt: skip
        with pytest.raises(EngineStoppedError, match="rank 1 is gone"):
            call()
    assert len(others.told) == 1


def test_transfers_are_those_of_all(ranks: TensorParallel, others: Others) -> None:
    orders = [Transfer(n, TransferKind.STORE, "host", n, n) for n in (1, 2)]
    dropped = Transfer(3, TransferKind.DROP, "host", 9)
    ranks.transfer([*orders, dropped])
    assert others.told == [Copy([*orders, dropped])]
    others.ends(1, [TransferEnd(1)])
    assert ranks.transferred() == ()
    others.gives_up = [(2,)]
    assert ranks.cancel_transfers([1, 2]) == [2]
    ranks.await_transfer(1.0)
    assert ranks.transferred() == [TransferEnd(1, "it was given up")]


def test_what_holds_collectives_is_given_to_those_who_leave_them(
    ranks: TensorParallel, others: Others
) -> None:
    ranks.close()
    assert [what for what, _ in others.done] == ["stop", "close", "inner"]
