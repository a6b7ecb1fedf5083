"""What one call of the experts is about.

Shape suffixes: T tokens of the step, K experts of a token, E experts, D model width, F feed-forward
width of an expert.
"""

from typing import NamedTuple, Protocol

from torch import Tensor


class Assigned(Protocol):
    """What of it sorting and summing need, however weights are held."""

    @property
    def x_TD(self) -> Tensor: ...  # noqa: N802
    @property
    def ids_TK(self) -> Tensor: ...  # noqa: N802
    @property
    def shares_TK(self) -> Tensor: ...  # noqa: N802
    @property
    def counts_E(self) -> Tensor | None: ...  # noqa: N802
    @property
    def tokens(self) -> int: ...
    @property
    def top(self) -> int: ...
    @property
    def assignments(self) -> int: ...
    @property
    def experts(self) -> int: ...
    @property
    def hidden(self) -> int: ...


class ExpertWork(NamedTuple):
    """As the contract has it. shares: by which what each expert makes is multiplied."""

    x_TD: Tensor
    ids_TK: Tensor
    shares_TK: Tensor
    gate_up_E2FD: Tensor
    down_EDF: Tensor
    counts_E: Tensor | None

    @property
    def tokens(self) -> int:
        return self.ids_TK.shape[0]

    @property
    def top(self) -> int:
        """Experts of a token."""
        return self.ids_TK.shape[1]

    @property
    def assignments(self) -> int:
        """One per token and expert of it."""
        return self.ids_TK.numel()

    @property
    def experts(self) -> int:
        return self.down_EDF.shape[0]

    @property
    def hidden(self) -> int:
        """The model's width."""
        return self.down_EDF.shape[1]

    @property
    def width(self) -> int:
        """The feed-forward width of an expert."""
        return self.down_EDF.shape[2]

    @property
    def load(self) -> int:
        """Assignments of an expert if all got equally many, rounded up."""
        return -(-self.assignments // self.experts)
