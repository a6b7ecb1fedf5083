"""Products of which some have quantized weights, behind the one contract of all products."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import Linear, Operations, OpSpec
from jackfield.core.api.model import Weights
from jackfield.core.api.quant import QuantizedWeights, QuantMatmul, QuantWeight


class QuantProduct(NamedTuple):
    """What `QuantMatmul.pack` made of a weight."""

    packed: Any


class SideBySide(NamedTuple):
    """Products with one input that cannot be one: their outputs are joined."""

    products: tuple[Any, ...]


class QuantLinear:
    """Serves whatever it packed, so that blocks need not know which weights are quantized."""

    def __init__(self, linear: Linear, quant_matmul: QuantMatmul) -> None:
        self._linear, self._quant_matmul = linear, quant_matmul

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return self._linear.unsupported(spec, device) + self._quant_matmul.unsupported(spec, device)

    def capturable(self) -> bool:
        return self._linear.capturable() and self._quant_matmul.capturable()

    def pack(self, weight_OI: Tensor, bias_O: Tensor | None) -> Any:
        return self._linear.pack(weight_OI, bias_O)

    def pack_quantized(self, weight: QuantWeight, bias_O: Tensor | None) -> QuantProduct:
        return QuantProduct(self._quant_matmul.pack(weight, bias_O))

    def __call__(self, x_TI: Tensor, packed: Any) -> Tensor:
        if isinstance(packed, QuantProduct):
            return self._quant_matmul(x_TI, packed.packed)
        if isinstance(packed, SideBySide):
            return torch.cat([self(x_TI, product) for product in packed.products], 1)
        return self._linear(x_TI, packed)


def quantized_too(ops: Operations, weights: Weights) -> Operations:
    """The same operations, whose products take quantized weights if there are any."""
    if ops.quant_matmul is None or not isinstance(weights, QuantizedWeights):
        return ops
    return replace(ops, linear=QuantLinear(ops.linear, ops.quant_matmul))
