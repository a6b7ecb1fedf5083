"""What one call of the experts is about.

Shape suffixes: T tokens of the step, K experts of a token, E experts, D model width, F feed-forward
width of an expert.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Assigned(ABC):
    """As the contract has it, however weights are held. shares: by which what each expert makes is
    multiplied."""

    x_TD: Tensor
    ids_TK: Tensor
    shares_TK: Tensor
    counts_E: Tensor | None

    @property
    @abstractmethod
    def experts(self) -> int:
        """Of the layer."""

    @property
    @abstractmethod
    def hidden(self) -> int:
        """The model's width."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The feed-forward width of an expert."""

    @property
    def tokens(self) -> int:
        """Of the step."""
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
    def load(self) -> int:
        """Assignments of an expert if all got equally many, rounded up."""
        return -(-self.assignments // self.experts)


@dataclass(frozen=True, slots=True)
class ExpertWork(Assigned):
    """With plain weights."""

    gate_up_E2FD: Tensor
    down_EDF: Tensor

    @property
    def experts(self) -> int:
        return self.down_EDF.shape[0]

    @property
    def hidden(self) -> int:
        return self.down_EDF.shape[1]

    @property
    def width(self) -> int:
        return self.down_EDF.shape[2]
