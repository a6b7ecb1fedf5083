"""The gated feed-forward part of a layer."""

from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.shape import DecoderShape


class Mlp:
    """One merged product for gate and up, then the product down."""

    def __init__(
        self, layer: int, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        prefix = f"model.layers.{layer}.mlp"
        hidden, wide, bias = shape.hidden_size, shape.intermediate_size, shape.mlp_bias
        self._linear, self._silu_mul = ops.linear, ops.silu_mul
        self._gate_up = load.rows(prefix, {"gate_proj": wide, "up_proj": wide}, hidden, bias)
        self._down = load.columns(f"{prefix}.down_proj", hidden, wide, bias)

    def __call__(self, x_TD: Tensor) -> Tensor:
        gate_up_T2F = self._linear(x_TD, self._gate_up)
        return self._linear(self._silu_mul(gate_up_T2F), self._down)
