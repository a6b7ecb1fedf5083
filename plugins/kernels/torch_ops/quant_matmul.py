"""Products with quantized weights, which are dequantized anew, a block of outputs at a time."""

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import linear

from jackfield.core.api.quant import ELEMENTS_AT_ONCE, QuantWeight
from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere


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
        blocks = list(weight.blocks(ELEMENTS_AT_ONCE))
        if len(blocks) == 1:
            return linear(x_TI, weight.dequantized(x_TI.dtype), bias_O)
        out_TO = x_TI.new_empty(x_TI.shape[0], weight.shape[0])
        for outputs, block in blocks:
            bias = None if bias_O is None else bias_O[outputs]
            out_TO[:, outputs] = linear(x_TI, block.dequantized(x_TI.dtype), bias)
        return out_TO
