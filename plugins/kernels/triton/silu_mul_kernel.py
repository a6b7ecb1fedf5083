"""The gate of a feed-forward layer, in blocks of a row."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous


@triton.jit
def gated(gate, up):
    """Of float32, and in float32."""
    return gate / (1.0 + tl.exp(-gate)) * up


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
    out = gated(gate, up).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * WIDTH + column, out, mask)
