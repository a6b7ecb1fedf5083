"""The gate of a feed-forward layer."""

import triton
import triton.language as tl
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.early import early, wait_for_previous
from jackfield.plugins.kernels.triton.launch import amount_config
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.support import TritonConfig


@triton.jit
def silu_mul_kernel(
    gate_up_ptr,
    out_ptr,
    row_stride,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_previous(EARLY)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < WIDTH
    gate_ptr = gate_up_ptr + row * row_stride + column
    gate = tl.load(gate_ptr, mask, other=0.0).to(tl.float32)
    up = tl.load(gate_ptr + WIDTH, mask, other=0.0).to(tl.float32)
    out = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * WIDTH + column, out.to(out_ptr.dtype.element_ty), mask)


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
