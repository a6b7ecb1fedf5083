"""One device in this process."""

from collections.abc import Sequence

import torch

from jackfield.core.engine.expert_reader import ExpertCounts, ExpertReader
from jackfield.core.engine.runner import Runner, Ticket
from jackfield.core.engine.steps import Late, StepPlan, StepResult
from jackfield.core.executors.transfers import NoTransfers, Transfers
from jackfield.core.kv.transfers import Transfer, TransferEnd


class SingleDevice:
    """Runs the model where it is. On a CPU a step is done when `sample` returns."""

    def __init__(
        self,
        runner: Runner,
        device: torch.device,
        transfers: Transfers | NoTransfers | None = None,
        experts: ExpertReader | None = None,
    ) -> None:
        self._runner = runner
        self._experts = experts
        self._transfers: Transfers | NoTransfers = transfers or NoTransfers()
        self.default_overlap = 0 if device.type == "cpu" else 1

    def forward(self, plan: StepPlan) -> Ticket:
        """The step up to its logits."""
        with torch.inference_mode():
            return self._runner.forward(plan)

    def logits(self, plan: StepPlan) -> torch.Tensor:
        """Of every position of the step, `[T, V]`, in place of all calls below. For evaluation."""
        with torch.inference_mode():
            return self._runner.logits(plan)

    def sample(self, ticket: Ticket, late: Late) -> None:
        """The step's tokens."""
        with torch.inference_mode():
            self._runner.sample(ticket, late)

    def collect(self, ticket: Ticket) -> StepResult:
        """The step's tokens on the host."""
        return self._runner.collect(ticket)

    def transfer(self, orders: Sequence[Transfer]) -> None:
        """Start copies between the pool and the tiers."""
        self._transfers.transfer(orders)

    def transferred(self) -> Sequence[TransferEnd]:
        """Those that ended since the last call."""
        return self._transfers.transferred()

    def await_transfer(self, seconds: float) -> None:
        """Wait until one ends, or so long."""
        self._transfers.await_transfer(seconds)

    def cancel_transfers(self, numbers: Sequence[int]) -> Sequence[int]:
        """Give those up that can be."""
        return self._transfers.cancel_transfers(numbers)

    def expert_counts(self) -> ExpertCounts:
        """Tokens that each expert got since the start; empty = there is none. For any thread."""
        experts = self._experts
        return {} if experts is None else experts.read()

    def release_cached(self) -> None:
        """Give memory that nobody uses back to the device. Called after a step had too little."""
        # Does nothing where no GPU was used.
        torch.cuda.empty_cache()

    def close(self) -> None:
        """Stop the tiers, drop the model and the pool."""
        self._transfers.close()
        self._transfers = NoTransfers()  # it holds the pool, too
        self._runner.close()
        self._experts = None  # it holds a tensor of the model
        del self._runner
