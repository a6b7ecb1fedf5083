"""The gate of a feed-forward layer."""

import triton
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.launch import amount_config
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.silu_mul_kernel import silu_mul_kernel
from jackfield.plugins.kernels.triton.support import TritonConfig


class TritonSiluMul(TritonOperation):
    """`silu(gate) * up` of `[..., 2F]`, in float32, rounded once."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = Configs("silu_mul")

    def __call__(self, gate_up_T2F: Tensor) -> Tensor:
        *shape, both = gate_up_T2F.shape
        width = both // 2
        out = gate_up_T2F.new_empty((*shape, width))
        rows = gate_up_T2F.reshape(-1, both)
        if rows.stride(1) != 1:
            rows = rows.contiguous()
        config = amount_config(self._configs, out.numel(), out.dtype, out)
        grid = (len(rows), triton.cdiv(width, config["BLOCK"]))
        if out.numel():
            silu_mul_kernel[grid](
                rows, out, rows.stride(0), WIDTH=width, **config, **early(out.device)
            )
        return out
