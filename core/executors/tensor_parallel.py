"""One model over several processes, each of which holds a part of every layer."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol, TypeVar
from weakref import finalize

import torch

from jackfield.core.api import EngineStoppedError
from jackfield.core.engine.expert_reader import ExpertCounts
from jackfield.core.engine.runner import Ticket
from jackfield.core.engine.steps import Late, StepPlan, StepResult
from jackfield.core.executors.joint_transfers import JointTransfers
from jackfield.core.executors.single import SingleDevice
from jackfield.core.executors.told_transfers import ToldTransfers
from jackfield.core.kv.transfers import Transfer, TransferEnd, TransferKind
from jackfield.core.wire.plan import plan_message, sample_message
from jackfield.core.wire.ranks import Copy, Logits, Release, encode_rank

T = TypeVar("T")


class Others(Protocol):
    """The other ranks, as the first one's executor sees them. None of them is ever lost alone."""

    @property
    def size(self) -> int:
        """Ranks in all."""

    @property
    def failure(self) -> str | None:
        """Why no step will succeed any more."""

    def send(self, message: bytes) -> None:
        """To each of them. Does not wait; after a failure it does nothing."""

    def begun(self, step: int) -> None:
        """This thread runs the step from now on."""

    def passed(self, step: int) -> None:
        """This rank has run the step. If another could not, that is the end of all."""

    def stumbled(self, step: int) -> None:
        """This rank could not run the step. Returns if none of the others could; raises
        `EngineStoppedError` if some did, which is the end of all."""

    def fail(self, reason: str) -> None:
        """End all of them."""

    def cancel(self, numbers: Sequence[int]) -> Sequence[Collection[int]]:
        """Which of these transfers each of the others gave up. Waits for them."""

    def hear_ends(self, listener: Callable[[int, Sequence[TransferEnd]], None]) -> None:
        """Call this, in another thread, when transfers have ended on one of them."""

    def diagnose(self, limit: float) -> str:
        """A step takes longer than so many seconds: say on which rank. It is the end of all."""

    def stop(self) -> None:
        """Tell them to end."""

    def close(self, drop: Callable[[], None]) -> None:
        """Have what holds collectives dropped, by that call in another thread, then wait until they
        have gone; for seconds, also if something hangs."""


class TensorParallel:
    """The first rank's device, and the others beside it: they are told first, and do the same.

    Whatever ends one rank ends all; from then on every call that computes raises
    `EngineStoppedError`.
    """

    def __init__(self, inner: SingleDevice, others: Others, *, has_tiers: bool) -> None:
        self._inner = inner
        self._others = others
        self._late: set[int] = set()
        self._waiting: set[int] = set()
        transfers = self._transfers = JointTransfers(others.size)
        others.hear_ends(transfers.ended)
        self._told: ToldTransfers | None = None
        if has_tiers:  # whose thread must not keep this object
            self._told = ToldTransfers(inner, partial(transfers.ended, 0))
            finalize(self, self._told.close)
        self.default_overlap = inner.default_overlap

    @property
    def failure(self) -> str | None:
        """Why no step will succeed any more; None = all ranks live. For any thread."""
        return self._others.failure

    def diagnose(self, limit: float) -> str:
        """Why a step takes longer than so many seconds. It is the end of all. For any thread."""
        return self._others.diagnose(limit)

    def forward(self, plan: StepPlan) -> Ticket:
        """The step up to its logits."""
        self._check()
        self._others.begun(plan.number)
        waits = self._waits(plan)
        self._others.send(encode_rank(plan_message(plan, waits=waits)))
        if waits:
            self._waiting.add(plan.number)
        return self._run(plan, lambda: self._inner.forward(plan))

    def _waits(self, plan: StepPlan) -> bool:
        """Whether something may be known of the step only when its tokens are drawn."""
        self._late.difference_update(plan.leaves)
        for join in plan.joins:
            self._late.discard(join.seat)
            if join.binds_late:
                self._late.add(join.seat)
        return bool(self._late) and any(part.seat in self._late for part in plan.slices)

    def sample(self, ticket: Ticket, late: Late) -> None:
        """The step's tokens."""
        self._check()
        plan = ticket.plan
        if plan.number in self._waiting:
            self._waiting.clear()
            self._others.send(encode_rank(sample_message(plan, late)))
        else:
            assert not late, "the other ranks have drawn their tokens already"
        self._run(plan, lambda: self._inner.sample(ticket, late))
        self._others.passed(plan.number)

    def collect(self, ticket: Ticket) -> StepResult:
        """The step's tokens on the host."""
        self._check()
        try:
            return self._inner.collect(ticket)
        finally:
            self._check()

    def logits(self, plan: StepPlan) -> torch.Tensor:
        """Of every position of the step, `[T, V]`, in place of all calls above. For evaluation."""
        self._check()
        self._others.begun(plan.number)
        self._others.send(encode_rank(Logits(plan_message(plan, waits=False))))
        found = self._run(plan, lambda: self._inner.logits(plan))
        self._others.passed(plan.number)
        return found

    def _run(self, plan: StepPlan, part: Callable[[], T]) -> T:
        """A part of a step that the others run, too. Where it raises on all alike, it is as on one
        device; otherwise they would no longer hold parts of the same."""
        try:
            return part()
        except Exception:
            self._others.stumbled(plan.number)
            raise
        except BaseException:
            self._others.fail(f"step {plan.number} was interrupted on rank 0")
            raise

    def _check(self) -> None:
        failure = self._others.failure
        if failure is not None:
            raise EngineStoppedError(failure)

    def transfer(self, orders: Sequence[Transfer]) -> None:
        """Start copies between the pool and the tiers."""
        self._transfers.open(o.number for o in orders if o.kind is not TransferKind.DROP)
        self._others.send(encode_rank(Copy(list(orders))))
        self._inner.transfer(orders)

    def transferred(self) -> Sequence[TransferEnd]:
        """Those that ended on all ranks since the last call."""
        return self._transfers.take()

    def await_transfer(self, seconds: float) -> None:
        """Wait until one ends, or so long."""
        self._transfers.wait(seconds)

    def cancel_transfers(self, numbers: Sequence[int]) -> Sequence[int]:
        """Give those up that can be on all ranks."""
        theirs = self._others.cancel(numbers)
        ours = self._inner.cancel_transfers(numbers)
        return self._transfers.given_up(numbers, [ours, *theirs])

    def expert_counts(self) -> ExpertCounts:
        """Tokens that each expert got since the start. Every rank routes every token, so this one
        knows. For any thread."""
        return self._inner.expert_counts()

    def release_cached(self) -> None:
        """Give memory that nobody uses back to the devices."""
        self._others.send(encode_rank(Release()))
        self._inner.release_cached()

    def close(self) -> None:
        """Stop all ranks, drop the model and the pool."""
        self._others.stop()
        self._others.close(self.drop)

    def drop(self) -> None:
        """What is here: the model, the pool, and copies between it and the tiers."""
        if self._told is not None:
            self._told.close()
        self._inner.close()
