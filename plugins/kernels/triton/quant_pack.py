"""Weights of few bits in the order in which the kernels read them."""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.quant import ELEMENTS_AT_ONCE, QuantKind, QuantWeight
from jackfield.plugins.kernels.triton.quant_values_kernel import FP8, INT4, INT8

SIDE = 16
"""Outputs of a tile."""
AT_ONCE = 32
"""Inputs of a block whose values are in the same place of a word."""
ROW_PARTS = 4
"""Programs that have the same outputs of different rows, at most."""
KINDS = {QuantKind.INT4: INT4.value, QuantKind.INT8: INT8.value, QuantKind.FP8: FP8.value}


class PackedQuant(NamedTuple):
    """words (int16): `[O / 16, blocks, 2, 32, 8]`: outputs, inputs, and a block of a tile: both
    halves of what the 32 threads of a warp hold, 8 words each at once. What is missing to whole
    blocks is zeros. Thread 4 * g + t has, as word 4 * q + 2 * h + c of half p, of output 8 * h + g
    the inputs 8 * t + 4 * p + 2 * q + c, and so many times 32 further: one for each value of the
    word. That is what a tensor core wants of the thread.

    scales_GR, zeros_GR: `[groups of inputs, groups of outputs]`, as the checkpoint has their types.
    group: inputs that share a scale; 0 = all. counters: of programs that share outputs; always 0
    between launches. The rest is as in `QuantWeight`.
    """

    kind: QuantKind
    words: Tensor
    scales_GR: Tensor
    zeros_GR: Tensor | None
    group: int
    rows: int
    shape: tuple[int, int]
    order_I: Tensor | None
    bias_O: Tensor | None
    counters: Tensor

    @property
    def values(self) -> int:
        """In a word."""
        return values_of(self.kind)

    @property
    def inputs(self) -> int:
        """Of a block."""
        return AT_ONCE * self.values

    @property
    def blocks(self) -> int:
        return self.words.shape[1]


def values_of(kind: QuantKind) -> int:
    """In a word of 16 bits."""
    return 4 if kind is QuantKind.INT4 else 2


def packed(weight: QuantWeight, bias_O: Tensor | None) -> PackedQuant:
    """Beside what it gives, a block of outputs is held a few times."""
    outputs, inputs = weight.shape
    sides, blocks = -(-outputs // SIDE), -(-inputs // (AT_ONCE * values_of(weight.kind)))
    device = weight.values.device
    words = torch.zeros(sides, blocks, 2, 32, 8, dtype=torch.int16, device=device)
    step = max(ELEMENTS_AT_ONCE // inputs // SIDE, 1)
    for first in range(0, sides, step):
        rows = weight.values[first * SIDE : (first + step) * SIDE].view(torch.uint8)
        words[first : first + step] = _tiled(rows, weight.kind, blocks)
    zeros_RG = weight.zeros_RG
    return PackedQuant(
        weight.kind,
        words,
        weight.scales_RG.t().contiguous(),
        None if zeros_RG is None else zeros_RG.t().contiguous(),
        0 if weight.scales_RG.shape[1] == 1 else weight.group,
        weight.rows,
        weight.shape,
        weight.order_I,
        bias_O,
        # The last to be written: a product reads all else before the kernel in front has ended.
        torch.zeros(sides * ROW_PARTS, dtype=torch.int32, device=device),
    )


def _tiled(held_OB: Tensor, kind: QuantKind, blocks: int) -> Tensor:
    """Some outputs, the last of which may be missing to whole tiles."""
    codes_OI = _codes(held_OB, kind)
    outputs, inputs = codes_OI.shape
    sides, values = -(-outputs // SIDE), values_of(kind)
    full = codes_OI.new_zeros(sides * SIDE, blocks * values * AT_ONCE)
    full[:outputs, :inputs] = codes_OI
    by_bits = full.view(sides, 2, 8, blocks, values, 4, 2, 2, 2)  # side h g block value t p q c
    by_place = by_bits.permute(4, 0, 3, 6, 2, 5, 7, 1, 8).reshape(values, sides, blocks, 2, 32, 8)
    if kind is QuantKind.INT4:
        by_place = by_place[0::2] | (by_place[1::2] << 4)
    halves = torch.stack((by_place[0], by_place[1]), -1)
    return halves.view(torch.int16).squeeze(-1)


def _codes(held_OB: Tensor, kind: QuantKind) -> Tensor:
    """One byte per input."""
    if kind is not QuantKind.INT4:
        return held_OB
    return torch.stack((held_OB & 15, held_OB >> 4), -1).flatten(1)
