"""Dense products with weights in panels, half as large where bfloat16 holds them exactly.

Shape suffixes: T tokens, I inputs, O outputs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.plugins.kernels.cpu.compiled import CompiledOperation
from jackfield.plugins.kernels.cpu.library import Functions, Library, dense_rows

ALIGNMENT = 64
WORD = 4
LOW_HALF = 0xFFFF
CHECKED_AT_ONCE = 1 << 22


class PackedLinear(NamedTuple):
    """words: the panels. full: 1 = float32, 0 = two bfloat16 to a word. bias_O in float32."""

    words: Tensor
    full: int
    inputs: int
    outputs: int
    bias_O: Tensor | None


class CpuLinear(CompiledOperation):
    """Inputs and outputs in the weight's type; products and sums in float32.

    A float32 weight whose values are all bfloat16 values, as those of most checkpoints are, is
    kept as bfloat16: the result is the same, and half the bytes are read.
    """

    name = "jackfield_linear"
    letters = "pnnnpinppnpi"

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self._packs = Functions(library, "jackfield_pack", "pnnippi")
        self._scratch = torch.empty(0)
        self._columns = 0

    def pack(self, weight_OI: Tensor, bias_O: Tensor | None) -> PackedLinear:
        """Copies; the weight itself is left as it is."""
        outputs, inputs = weight_OI.shape
        weight_OI = weight_OI.contiguous()
        full = int(not _is_half(weight_OI))
        columns = self._panel_columns()
        panels = -(-outputs // columns)
        words = _aligned(panels * inputs * columns // (1 if full else 2))
        self._packs[weight_OI.dtype](
            weight_OI.data_ptr(), outputs, inputs, full, words.data_ptr(), None,
            torch.get_num_threads(),
        )  # fmt: skip
        bias = None if bias_O is None else bias_O.float().contiguous()
        return PackedLinear(words, full, inputs, outputs, bias)

    def _panel_columns(self) -> int:
        if not self._columns:
            answer = torch.zeros(1, dtype=torch.int64)
            self._packs[torch.float32](None, 0, 0, 0, None, answer.data_ptr(), 1)
            self._columns = int(answer)
        return self._columns

    def __call__(self, x_TI: Tensor, packed: PackedLinear) -> Tensor:
        x_TI, strides = dense_rows(x_TI)
        words, full, inputs, outputs, bias_O = packed
        rows = x_TI.shape[0]
        threads = torch.get_num_threads()
        needed = inputs * (rows + threads * self._columns)
        if self._scratch.numel() < needed:
            self._scratch = torch.empty(needed)
        out_TO = x_TI.new_empty(rows, outputs)
        self._functions[x_TI.dtype](
            x_TI.data_ptr(),
            strides[0],
            rows,
            inputs,
            words.data_ptr(),
            full,
            outputs,
            None if bias_O is None else bias_O.data_ptr(),
            out_TO.data_ptr(),
            outputs,
            self._scratch.data_ptr(),
            threads,
        )
        return out_TO


def _is_half(weight_OI: Tensor) -> bool:
    """Whether bfloat16 holds every value exactly; looked at in parts to keep memory small."""
    if weight_OI.dtype is torch.bfloat16:
        return True
    parts = torch.split(weight_OI.view(torch.int32).flatten(), CHECKED_AT_ONCE)
    return not any(bool((part & LOW_HALF).any()) for part in parts)


def _aligned(count: int) -> Tensor:
    """`count` words that begin at a cache line."""
    spare = ALIGNMENT // WORD
    words = torch.empty(count + spare, dtype=torch.int32)
    return words[-words.data_ptr() // WORD % spare :][:count]
