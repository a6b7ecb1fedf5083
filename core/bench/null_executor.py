"""An executor that computes nothing, so that only the scheduler takes time."""

from jackfield.core.engine.steps import Late, StepPlan, StepResult
from jackfield.core.executors.transfers import NoTransfers

TOKEN = 7


class NullExecutor(NoTransfers):
    """Every sequence samples the same token at once."""

    default_overlap = 0

    def forward(self, plan: StepPlan) -> StepPlan:
        """The plan is its own ticket."""
        return plan

    def sample(self, ticket: StepPlan, late: Late) -> None:
        """Nothing is drawn."""

    def collect(self, ticket: StepPlan) -> StepResult:
        """One token for each that was to be sampled."""
        counts = [part.samples for part in ticket.slices]
        return StepResult([TOKEN] * sum(counts), counts)
