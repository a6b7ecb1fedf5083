"""Products with quantized weights, which are dequantized anew, a block of outputs at a time."""

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import linear

from jackfield.core.api.quant import QuantWeight
from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere

ELEMENTS_AT_ONCE = 1 << 22
"""Of a weight that are dequantized; a few times as many float32 numbers are held meanwhile."""


class PackedQuant(NamedTuple):
    """The weight as it is held, and its bias."""

    weight: QuantWeight
    bias_O: Tensor | None


class TorchQuantMatmul(Everywhere):
    """Weight-only: rounds the dequantized weight to the type of x, and multiplies in that."""

    def pack(self, weight: QuantWeight, bias_O: Tensor | None) -> PackedQuant:
        return PackedQuant(weight, bias_O)

    def __call__(self, x_TI: Tensor, packed: PackedQuant) -> Tensor:
        weight, bias_O = packed
        if weight.order_I is not None:
            x_TI = x_TI.index_select(1, weight.order_I)
        outputs = weight.shape[0]
        step = _outputs_at_once(weight)
        if step >= outputs:
            return linear(x_TI, weight.dequantized(x_TI.dtype), bias_O)
        out_TO = x_TI.new_empty(x_TI.shape[0], outputs)
        for first in range(0, outputs, step):
            last = min(first + step, outputs)
            bias = None if bias_O is None else bias_O[first:last]
            block_OI = weight.block(first, last).dequantized(x_TI.dtype)
            out_TO[:, first:last] = linear(x_TI, block_OI, bias)
        return out_TO


def _outputs_at_once(weight: QuantWeight) -> int:
    blocks = ELEMENTS_AT_ONCE // (weight.shape[1] * weight.rows)
    return max(blocks, 1) * weight.rows
