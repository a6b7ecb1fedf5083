"""Weights of few bits: how they are held, and the operation that multiplies with them.

Shape suffixes: T tokens of the step, O and I outputs and inputs of a product, R and G how many
scales there are along outputs and inputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jackfield.core.api.model import Split, Weights
from jackfield.core.api.operation import Operation

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class QuantKind(Enum):
    """What one stored value is. Integers are unsigned, and mean their distance to a zero point."""

    INT4 = "int4"
    INT8 = "int8"
    FP8 = "fp8"

    @property
    def middle(self) -> int:
        """The zero point of a weight that brings none."""
        return {QuantKind.INT4: 8, QuantKind.INT8: 128, QuantKind.FP8: 0}[self]


ELEMENTS_AT_ONCE = 1 << 22
"""Of a weight that are dequantized; a few times as many float32 numbers are held meanwhile."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantWeight:
    """A weight `[O, I]` whose entry at (o, i) is `(value - zero) * scale`.

    Scale and zero are those at `[o // rows, i // group]`, so a last group may be short. Whatever
    checkpoints store is brought into this one form when it is loaded.

    values: INT4 as uint8 `[O, I / 2]`, the even input in the low half of a byte; INT8 as uint8
    `[O, I]`; FP8 as float8_e4m3fn `[O, I]`. scales_RG: a float type, of the checkpoint's choice.
    zeros_RG: uint8; None = `kind.middle` everywhere. group: inputs that share a scale. rows:
    outputs that do. order_I (int64): which input each column belongs to, if columns were sorted by
    group; None = the column's own.
    """

    kind: QuantKind
    values: "Tensor"
    scales_RG: "Tensor"
    zeros_RG: "Tensor | None"
    group: int
    rows: int
    shape: tuple[int, int]
    order_I: "Tensor | None" = None

    @property
    def nbytes(self) -> int:
        """Of all its tensors."""
        parts = (self.values, self.scales_RG, self.zeros_RG, self.order_I)
        return sum(part.nbytes for part in parts if part is not None)

    def block(self, first: int, last: int) -> "QuantWeight":
        """Outputs from `first` up to `last`, as views. `first` is a multiple of `rows`."""
        assert first % self.rows == 0, f"output {first} is inside a block of {self.rows}"
        scales = slice(first // self.rows, -(-last // self.rows))
        zeros_RG = None if self.zeros_RG is None else self.zeros_RG[scales]
        return QuantWeight(
            self.kind, self.values[first:last], self.scales_RG[scales], zeros_RG, self.group,
            self.rows, (last - first, self.shape[1]), self.order_I,
        )  # fmt: skip

    def blocks(self, elements: int) -> "Iterator[tuple[slice, QuantWeight]]":
        """All outputs, in blocks of at most so many entries where `rows` allow it: which outputs a
        block has, and the block."""
        outputs, inputs = self.shape
        step = max(elements // (inputs * self.rows), 1) * self.rows
        for first in range(0, outputs, step):
            last = min(first + step, outputs)
            yield slice(first, last), self.block(first, last)

    def dequantized(self, dtype: "torch.dtype") -> "Tensor":
        """`[O, I]`, computed in float32 and rounded once; columns as they are stored. Never waits
        for the device. Holds a few float32 tensors of that size: take blocks of large weights."""
        result_OI = self._codes().float()
        if self.zeros_RG is not None:
            result_OI -= self._spread(self.zeros_RG.float())
        elif self.kind.middle:
            result_OI -= self.kind.middle
        result_OI *= self._spread(self.scales_RG.float())
        return result_OI.to(dtype)

    def _codes(self) -> "Tensor":
        if self.kind is not QuantKind.INT4:
            return self.values
        codes = self.values.new_empty(*self.values.shape, 2)
        codes[..., 0] = self.values & 15
        codes[..., 1] = self.values >> 4
        return codes.flatten(1)

    def _spread(self, table_RG: "Tensor") -> "Tensor":
        """One entry per output, or one for all, and one per input."""
        outputs, inputs = self.shape
        if self.rows > 1:
            table_RG = table_RG.repeat_interleave(self.rows, 0)[:outputs]
        if table_RG.shape[1] == 1:
            return table_RG
        return table_RG.repeat_interleave(self.group, 1)[:, :inputs]


class QuantMatmul(Operation, Protocol):
    """A dense product with a quantized weight. Optional: what nobody multiplies as it is stored
    is dequantized when it is loaded."""

    def pack(self, weight: QuantWeight, bias_O: "Tensor | None") -> Any:
        """The weight in the form `__call__` wants. Called once per product while a model is built.
        Takes ownership: the caller drops its own."""

    def __call__(self, x_TI: "Tensor", packed: Any) -> "Tensor":
        """[T, I] -> [T, O] in the type of x, which is the model's. Inputs come in the order of the
        model: a weight's `order_I` is for the operation to see to."""


class QuantMatmulSiluMul(Operation, Protocol):
    """`silu(gate) * up` of a product whose first half of outputs is gate, the second one up.

    Optional: without it `quant_matmul` and `silu_mul` do the same, and it is only bound from the
    plugin that serves both. It rounds as they do: gate and up to the type of `x`, then what comes
    out.
    """

    def __call__(self, x_TI: "Tensor", packed: Any) -> "Tensor":
        """[T, I] -> [T, F] in the type of x. packed: what that plugin's `quant_matmul` has made of
        a weight [2F, I] and its bias."""


@runtime_checkable
class QuantizedWeights(Weights, Protocol):
    """Weights of which some are quantized. A model that does not know of them uses `take`, which
    gives any weight dequantized, at the price of its memory."""

    def take_quantized(
        self,
        name: str,
        shape: tuple[int, int],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> QuantWeight | None:
        """As `take`, for the weight of a product; None if this one is stored plain, or if a part of
        it cannot be held as it is stored.

        Raises `CheckpointError` that names file and tensor as well if what belongs to the weight
        is missing, or is not as the checkpoint's `quantization_config` has it.
        """
