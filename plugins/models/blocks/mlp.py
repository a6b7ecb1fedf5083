"""The gated feed-forward part of a layer."""

from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.plugins.models.blocks.gate_up import make_gate_up
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.shape import DecoderShape
from jackfield.plugins.models.blocks.share import Share


class GatedMlp:
    """One merged product for gate and up, then the product down, which ranks have yet to add up."""

    def __init__(
        self,
        prefix: str,
        hidden: int,
        width: int,
        ops: Operations,
        load: LinearLoader,
        bias: bool = False,
    ) -> None:
        self._linear, share = ops.linear, Share.even(width, load.shard)
        merged = load.rows(prefix, {"gate_proj": share, "up_proj": share}, hidden, bias)
        self._gate_up = make_gate_up(merged, ops)
        self._down = load.columns(f"{prefix}.down_proj", hidden, share, bias)

    def __call__(self, x_TD: Tensor) -> Tensor:
        return self._linear(self._gate_up(x_TD), self._down)


class Mlp(GatedMlp):
    """That of a layer without experts."""

    def __init__(
        self, layer: int, shape: DecoderShape, ops: Operations, load: LinearLoader
    ) -> None:
        prefix = f"model.layers.{layer}.mlp"
        hidden, width = shape.hidden_size, shape.intermediate_size
        super().__init__(prefix, hidden, width, ops, load, shape.mlp_bias)

    def __call__(self, x_TD: Tensor, slots_T: Tensor | None = None) -> Tensor:
        """slots: of no use here."""
        return super().__call__(x_TD)
