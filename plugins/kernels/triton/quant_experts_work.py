"""What one call of experts with quantized weights is about.

Shape suffixes: T tokens of the step, K experts of a token, E experts, D model width, A assignments,
one per token and expert of it.
"""

from typing import NamedTuple

from torch import Tensor

from jackfield.plugins.kernels.triton.quant_experts_pack import PackedExperts


class QuantWork(NamedTuple):
    """As the contract has it. shares: by which what each expert makes is multiplied."""

    x_TD: Tensor
    ids_TK: Tensor
    shares_TK: Tensor
    packed: PackedExperts
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
        return self.packed.experts

    @property
    def hidden(self) -> int:
        """The model's width."""
        return self.packed.hidden

    @property
    def width(self) -> int:
        """The feed-forward width of an expert."""
        return self.packed.width

    @property
    def load(self) -> int:
        """Assignments of an expert if all got equally many, rounded up."""
        return -(-self.assignments // self.experts)

    @property
    def bits(self) -> int:
        """Of a value."""
        return 16 // self.packed.gate_up.values
