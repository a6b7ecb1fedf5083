"""Asks for weights before the kernel in front has ended."""

import triton
import triton.language as tl

LINE: tl.constexpr = tl.constexpr(128)
"""Bytes that the cache fetches at once."""


@triton.jit
def fetch(address):
    """Has the cache fetch the line of each address (int64)."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [address],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def ask_for(weights, first, width, AHEAD: tl.constexpr):
    """weights `[OUTPUTS]`: where those of each output begin. AHEAD: entries of each, from `first`
    on; 0 = none."""
    if AHEAD > 0:
        STEP: tl.constexpr = LINE // (weights.dtype.element_ty.primitive_bitwidth // 8)
        entry = tl.minimum(first + tl.arange(0, AHEAD // STEP) * STEP, width - 1)
        fetch((weights[:, None] + entry[None, :]).to(tl.int64))
