"""The gated feed-forward part of a layer."""

from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.shape import DecoderShape


class GatedMlp:
    """One merged product for gate and up, then the product down."""

    def __init__(
        self,
        prefix: str,
        hidden: int,
        width: int,
        ops: Operations,
        load: LinearLoader,
        bias: bool = False,
    ) -> None:
        self._linear, self._silu_mul = ops.linear, ops.silu_mul
        self._gate_up = load.rows(prefix, {"gate_proj": width, "up_proj": width}, hidden, bias)
        self._down = load.columns(f"{prefix}.down_proj", hidden, width, bias)

    def __call__(self, x_TD: Tensor) -> Tensor:
        gate_up_T2F = self._linear(x_TD, self._gate_up)
        return self._linear(self._silu_mul(gate_up_T2F), self._down)


class Mlp(GatedMlp):
    """That of a layer without experts."""

    def __init__(
        self, layer: int, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        prefix = f"model.layers.{layer}.mlp"
        hidden, width = shape.hidden_size, shape.intermediate_size
        super().__init__(prefix, hidden, width, ops, load, shape.mlp_bias)
