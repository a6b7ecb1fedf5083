"""The merged product for gate and up, with weights of few bits, and the gate's function.

Shape suffixes beside those of the contract: F is half of the outputs.
"""

from torch import Tensor

from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.quant_matmul import (
    QuantConfigs,
    TritonQuantMatmul,
    multiply_tiles,
)
from jackfield.plugins.kernels.triton.quant_pack import AT_ONCE, SIDE, PackedQuant
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul
from jackfield.plugins.kernels.triton.support import TritonConfig


class TritonQuantMatmulSiluMul(TritonOperation):
    """One launch for few rows. More, whatever the table has no entry for, and gates that are no
    multiple of 16 wide are left to the two operations that it stands for."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = QuantConfigs("quant_gate_up")
        self._multiply = TritonQuantMatmul(config)
        self._silu_mul = TritonSiluMul(config)

    def __call__(self, x_TI: Tensor, packed: PackedQuant) -> Tensor:
        (rows, _), (outputs, _) = x_TI.shape, packed.shape
        config = self._configs.find(rows, packed, x_TI.dtype)
        if config is None or packed.group % AT_ONCE or outputs % (2 * SIDE):
            return self._silu_mul(self._multiply(x_TI, packed))
        out_TF = x_TI.new_empty(rows, outputs // 2)
        multiply_tiles(x_TI, packed, out_TF, config, outputs // 2 // SIDE)
        return out_TF
