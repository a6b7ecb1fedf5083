"""The experts of a layer whose weights stay as few bits as they are stored in.

Shape suffixes as in `experts`.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jackfield.core.api.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor

    from jackfield.core.api.quant import QuantWeight


class QuantExpert(NamedTuple):
    """One expert. gate_up: `[2F, D]`, the outputs of gate, then those of up; may have an `order_I`.
    F is a multiple of its `rows`. down: `[D, F]`; its inputs are in the order of gate and up."""

    gate_up: "QuantWeight"
    down: "QuantWeight"


class QuantExperts(Operation, Protocol):
    """As `Experts`, with quantized weights. Optional: experts that nobody multiplies as they are
    stored are dequantized when they are loaded."""

    def pack(self, experts: "Iterable[QuantExpert]", count: int) -> Any:
        """The experts of a layer, so many, in the form `__call__` wants. Called once per layer
        while a model is built, on one thread. Takes ownership of each expert as it comes, and asks
        for the next one only then, so that no more than one is held beside what is made of them.

        All have the same `kind`, `group`, `rows`, shape and types of scales. Some may have zero
        points or an order, and others none. The iterator raises if an expert cannot be had; that
        must come through, and what was made is dropped.
        """

    def __call__(
        self,
        x_TD: "Tensor",
        ids_TK: "Tensor",
        weights_TK: "Tensor",
        packed: Any,
        counts_E: "Tensor | None" = None,
    ) -> "Tensor":
        """[T, D] in the type of `x`, a tensor of the caller's own; all as in `Experts`."""
