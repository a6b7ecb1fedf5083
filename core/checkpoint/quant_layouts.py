"""From the packed words of each format to `QuantWeight.values`, on the device they are on.

Shape suffixes: O and I outputs and inputs, W words, G groups; A and B any. Words are little-endian,
so their bytes are in the order of their values.
"""

import torch
from torch import Tensor

from jackfield.core.api.quant import QuantKind

AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in a word of AWQ the values of eight neighbouring outputs are: it begins with those of
0, 2, 4, 6, 1, 3, 5, 7."""


def values_of_words(words_AW: Tensor, kind: QuantKind) -> Tensor:
    """One uint8 per value, the lowest bits of a word first."""
    bytes_AB = words_AW.contiguous().view(torch.uint8)
    return unpack_halves(bytes_AB) if kind is QuantKind.INT4 else bytes_AB


def unpack_halves(bytes_AB: Tensor) -> Tensor:
    """Two values per byte, the low half first."""
    return torch.stack((bytes_AB & 15, bytes_AB >> 4), -1).flatten(1)


def pack_halves(values_OI: Tensor) -> Tensor:
    """What `unpack_halves` undoes; the number of inputs is even."""
    return values_OI[:, 0::2] | (values_OI[:, 1::2] << 4)


def awq_values(words_AW: Tensor) -> Tensor:
    """`[A, outputs]` of words of eight outputs."""
    values = values_of_words(words_AW, QuantKind.INT4).view(*words_AW.shape, 8)
    return values[..., list(AWQ_PLACES)].flatten(1)


def held(values_OI: Tensor, kind: QuantKind) -> Tensor:
    """Single values in the form of `QuantWeight.values`."""
    return (pack_halves(values_OI) if kind is QuantKind.INT4 else values_OI).contiguous()


def held_from_rows(words_OW: Tensor, inputs: int, kind: QuantKind) -> Tensor:
    """Words of neighbouring inputs are in that form already, but for what fills the last one."""
    bytes_OB = words_OW.contiguous().view(torch.uint8)
    return bytes_OB[:, : inputs // 2 if kind is QuantKind.INT4 else inputs].contiguous()


def sorted_inputs(held_OB: Tensor, order_I: Tensor, kind: QuantKind) -> Tensor:
    """The same with the columns in another order."""
    values_OI = unpack_halves(held_OB) if kind is QuantKind.INT4 else held_OB
    return held(values_OI.index_select(1, order_I), kind)


def unsigned(values: Tensor) -> Tensor:
    """int8 as uint8 that are larger by 128."""
    return values.contiguous().view(torch.uint8) ^ 128
