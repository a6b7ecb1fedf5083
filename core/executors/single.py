"""One device in this process."""

import torch

from jackfield.core.engine.runner import Runner, Ticket
from jackfield.core.engine.steps import Late, StepPlan, StepResult


class SingleDevice:
    """Runs the model where it is. On a CPU a step is done when `sample` returns."""

    def __init__(self, runner: Runner, device: torch.device) -> None:
        self._runner = runner
        self.default_overlap = 0 if device.type == "cpu" else 1

    def forward(self, plan: StepPlan) -> Ticket:
        """The step up to its logits."""
        with torch.inference_mode():
            return self._runner.forward(plan)

    def sample(self, ticket: Ticket, late: Late) -> None:
        """The step's tokens."""
        with torch.inference_mode():
            self._runner.sample(ticket, late)

    def collect(self, ticket: Ticket) -> StepResult:
        """The step's tokens on the host."""
        return self._runner.collect(ticket)

    def close(self) -> None:
        """Drop the model and the pool."""
        del self._runner
