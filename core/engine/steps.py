"""What passes between the engine and its executor: one plan and one result per step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from jackfield.core.api import SamplingParams
from jackfield.core.kv.transfers import BlockCopy, Transfer, TransferEnd


class Slice(NamedTuple):
    """Consecutive positions of one sequence, computed in one step.

    tokens: their ids; None = one token, the last one sampled on the seat. samples: how many
    tokens are drawn after it (0 inside a prompt). scores: whether the prompt's own
    log-probabilities are wanted for these positions.
    """

    handle: int
    seat: int
    start: int
    length: int
    tokens: Sequence[int] | None
    samples: int
    scores: bool


class Join(NamedTuple):
    """A sequence takes a seat. It holds all that sampling needs to know of it.

    output: tokens that were sampled before, on a seat that was lost. stop_ids: ids that end the
    answer; they are masked until min_tokens were sampled. banned: ids never sampled. binds_late:
    whether more may be banned when the token before is known.
    """

    seat: int
    handle: int
    params: SamplingParams
    seed: int
    prompt: Sequence[int]
    output: Sequence[int]
    stop_ids: frozenset[int]
    banned: Sequence[int]
    binds_late: bool = False


class BlockUpdate(NamedTuple):
    """The sequence on `seat` has these blocks from `first` of its table on."""

    seat: int
    first: int
    blocks: Sequence[int]


@dataclass(slots=True)
class StepPlan:
    """One step. Slices that feed on the device's last token come first: `num_decodes` of them.

    leaves are seats that became empty since the last plan; they come before the joins. copies are
    made before anything is computed.
    """

    number: int
    slices: list[Slice] = field(default_factory=list)
    num_decodes: int = 0
    leaves: list[int] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)
    blocks: list[BlockUpdate] = field(default_factory=list)
    copies: list[BlockCopy] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Positions of all slices."""
        return sum(part.length for part in self.slices)


class TokenScore(NamedTuple):
    """Log-probabilities at one position: of the token itself, its rank, and of the likeliest."""

    token: int
    logprob: float
    rank: int
    top: Sequence[tuple[int, float]]


@dataclass(slots=True)
class StepResult:
    """What a step gave, slice by slice in the order of the plan.

    tokens: flat, `counts[i]` of them belong to slice i (0 where nothing was sampled). scores:
    per index into tokens. prompt_scores: handle -> position -> score. failures: handle -> why
    this one sequence failed.
    """

    tokens: list[int]
    counts: list[int]
    scores: Mapping[int, TokenScore] = field(default_factory=dict)
    prompt_scores: Mapping[int, Mapping[int, TokenScore]] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)


Late = Mapping[int, Sequence[int]]
"""Handle -> ids that must not be sampled, known only after the step before was collected."""


ReadExperts = Callable[[], Mapping[int, Sequence[int]]]
"""The method `expert_counts` that an executor may have: layer -> tokens that each of its experts
got since the start. May be called from any thread."""


class Executor(Protocol):
    """Runs steps in the order in which they come. Called from the engine's thread only."""

    @property
    def default_overlap(self) -> int:
        """How many steps may be in flight while the next is planned; 0 = submitting waits."""

    def forward(self, plan: StepPlan) -> Any:
        """Start the step up to its logits; gives a ticket. Raising fails the step's requests."""

    def sample(self, ticket: Any, late: Late) -> None:
        """Start sampling of the step. Called once per ticket, in order."""

    def collect(self, ticket: Any) -> StepResult:
        """Wait for the step's result. Called once per ticket, in order."""

    def transfer(self, orders: Sequence[Transfer]) -> None:
        """Start these copies, after the steps submitted so far. Failures are told when they end.

        Orders of one tier run in their order, but for a SPILL, which has its turn once the tier
        above was read. The content of a STORE's block and of a SPILL's slot stays untouched until
        the transfer has ended; nobody reads a target before.
        """

    def transferred(self) -> Sequence[TransferEnd]:
        """Those that ended since the last call, DROP excepted. Never waits."""

    def await_transfer(self, seconds: float) -> None:
        """Wait until a transfer ends that `transferred` has not told yet, or so long."""

    def cancel_transfers(self, numbers: Sequence[int]) -> Sequence[int]:
        """Give transfers up. Returns those that will never touch the device any more, and of which
        `transferred` will tell nothing; the others end soon."""

    def close(self) -> None:
        """Give everything back. Nothing is called afterwards."""
