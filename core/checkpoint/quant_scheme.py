"""How one weight of a checkpoint is quantized, whatever the checkpoint calls it."""

from enum import Enum
from typing import NamedTuple

from jackfield.core.api.quant import QuantKind


class QuantLayout(Enum):
    """Which tensors stand for a weight.

    AWQ: `qweight` and `qzeros` in words of eight outputs, `scales`. GPTQ: `qweight` in words of
    inputs, `qzeros` in words of outputs, `scales`, `g_idx`. PACKED (compressed-tensors):
    `weight_packed` in words of inputs, `weight_zero_point` in words of outputs, `weight_scale`.
    PLAIN: `weight` of one byte an entry, and its scale.
    """

    AWQ = "awq"
    GPTQ = "gptq"
    PACKED = "pack-quantized"
    PLAIN = "plain"


class Scheme(NamedTuple):
    """What a `quantization_config` says of a weight.

    method: its name there, for messages. group: inputs that share a scale; None = all of them.
    rows: outputs that share a scale; more than one only in blocks. symmetric: zero points are in
    the middle. zero_shift: what stored zero points are too small by. act_order: inputs may belong
    to groups in any order.
    """

    method: str
    layout: QuantLayout
    kind: QuantKind
    group: int | None
    rows: int = 1
    symmetric: bool = True
    zero_shift: int = 0
    act_order: bool = False

    @property
    def words(self) -> int:
        """Values in a packed word of 32 bits."""
        return 8 if self.kind is QuantKind.INT4 else 4

    @property
    def text(self) -> str:
        """In words, as messages have it."""
        kind = f"{self.method} {self.kind.value}"
        if self.rows > 1:
            return f"{kind} in blocks of {self.rows}x{self.group}"
        return kind if self.group is None else f"{kind} in groups of {self.group}"
