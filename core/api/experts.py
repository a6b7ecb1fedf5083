"""The operation of models that send each token to a few of many feed-forward parts.

Shape suffixes: T tokens of the step, K experts of a token, E experts, D model width, F feed-forward
width of an expert.
"""

from typing import TYPE_CHECKING, Protocol

from jackfield.core.api.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


class Experts(Operation, Protocol):
    """The weighted sum of what each token's experts make of it. Optional: only models that have
    experts need it.

    An expert is `down @ (silu(gate) * up)`, where `gate_up` makes gate and up side by side. It may
    get no token, or all of them. Its product is rounded to the type of `x`, if at all; weighted
    products are summed in float32, in an order that does not depend on the other tokens.
    """

    def __call__(
        self,
        x_TD: "Tensor",
        ids_TK: "Tensor",
        weights_TK: "Tensor",
        gate_up_E2FD: "Tensor",
        down_EDF: "Tensor",
    ) -> "Tensor":
        """[T, D] in the type of `x`, a tensor of the caller's own.

        ids (int64): each between 0 and E - 1, those of a token distinct, in no order. weights
        (float32): by which what the expert makes is multiplied; they need not sum to 1. `x`, ids
        and weights are not changed; the two packs of weights are contiguous.
        """
