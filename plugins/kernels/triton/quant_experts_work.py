"""What one call of experts with quantized weights is about."""

from dataclasses import dataclass

from jackfield.plugins.kernels.triton.experts_work import Assigned
from jackfield.plugins.kernels.triton.quant_experts_pack import PackedExperts


@dataclass(frozen=True, slots=True)
class QuantWork(Assigned):
    """With weights as they are packed."""

    packed: PackedExperts

    @property
    def experts(self) -> int:
        return self.packed.experts

    @property
    def hidden(self) -> int:
        return self.packed.hidden

    @property
    def width(self) -> int:
        return self.packed.width

    @property
    def bits(self) -> int:
        """Of a value."""
        return 16 // self.packed.gate_up.values
