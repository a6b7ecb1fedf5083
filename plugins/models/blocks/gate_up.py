"""Gate and up of a feed-forward part, and the gate's function."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.plugins.models.blocks.quant_linear import QuantProduct


class GateUp:
    """A merged product whose first half of outputs is gate, then `silu(gate) * up` of it."""

    def __init__(self, packed: Any, ops: Operations) -> None:
        self._packed, self._linear, self._silu_mul = packed, ops.linear, ops.silu_mul

    def __call__(self, x_TD: Tensor) -> Tensor:
        return self._silu_mul(self._linear(x_TD, self._packed))


class QuantGateUp:
    """The same in one operation."""

    def __init__(self, product: QuantProduct, multiply: Callable[[Tensor, Any], Tensor]) -> None:
        self._packed, self._multiply = product.packed, multiply

    def __call__(self, x_TD: Tensor) -> Tensor:
        return self._multiply(x_TD, self._packed)


def make_gate_up(packed: Any, ops: Operations) -> GateUp | QuantGateUp:
    """packed: what `ops.linear` made of both weights."""
    joint = ops.quant_matmul_silu_mul
    if joint is not None and isinstance(packed, QuantProduct):
        return QuantGateUp(packed, joint)
    return GateUp(packed, ops)
