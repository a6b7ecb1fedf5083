"""A device that breaks at chosen steps, and works again at the next one."""

from collections.abc import Collection

from jackfield.core.engine.steps import Late, StepPlan, StepResult
from jackfield.core.testing.fake_executor import FakeExecutor, Ticket
from jackfield.core.testing.fake_memory import POISON
from jackfield.core.testing.fake_tiers import FakeTiers


class DeviceError(RuntimeError):
    """What the device raises."""


class FailingExecutor(FakeExecutor):
    """Raises in `forward`, `sample` or `collect` of the steps that are listed.

    denied: the first answer token of which requests (by handle) fails alone, and why. tiers: run
    the transfers, which go on while steps break.
    """

    def __init__(
        self,
        block_size: int,
        vocab_size: int = 1000,
        *,
        forward: Collection[int] = (),
        sample: Collection[int] = (),
        collect: Collection[int] = (),
        denied: dict[int, str] | None = None,
        tiers: FakeTiers | None = None,
    ) -> None:
        super().__init__(block_size, vocab_size, tiers=tiers)
        self._forward, self._sample, self._collect = forward, sample, collect
        self._denied = denied or {}

    def forward(self, plan: StepPlan) -> Ticket:
        """Seats are taken and left before the kernels break; what is copied to is garbage."""
        if plan.number in self._forward:
            self._next_step = plan.number + 1
            self._seat(plan)
            self._copy(plan.copies)
            self._spoil_copies(plan)
            raise DeviceError(f"forward of step {plan.number} broke")
        ticket = super().forward(plan)
        if plan.number in self._collect:
            self._spoil(plan)
        return ticket

    def _spoil(self, plan: StepPlan) -> None:
        """What a step that breaks has written is garbage, also for who reads it before that."""
        self._spoil_copies(plan)
        for part in plan.slices:
            table = self._seats[part.seat].table
            self.memory.write(table, part.start, [POISON] * part.length, None)

    def _spoil_copies(self, plan: StepPlan) -> None:
        for copy in plan.copies:
            self.memory.put(copy.target, self.memory.poison())

    def sample(self, ticket: Ticket, late: Late) -> None:
        """Nothing is drawn when it breaks."""
        if ticket.plan.number in self._sample:
            raise DeviceError(f"sampling of step {ticket.plan.number} broke")
        super().sample(ticket, late)

    def collect(self, ticket: Ticket) -> StepResult:
        """A fault that shows late, when later steps may be under way."""
        if ticket.plan.number in self._collect:
            raise DeviceError(f"step {ticket.plan.number} broke")
        result = super().collect(ticket)
        result.failures = {
            part.handle: self._denied[part.handle]
            for part in ticket.plan.slices
            if part.handle in self._denied and part.samples
        }
        return result
