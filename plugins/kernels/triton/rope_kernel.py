"""Rotates heads in the GPT-NeoX order: their halves against each other."""

import triton
import triton.language as tl


@triton.jit
def _rotate(x_ptr, head_stride, cos, sin, head, heads, WIDTH: tl.constexpr, PAIRS: tl.constexpr):
    """One token's heads, in place."""
    pair = tl.arange(0, PAIRS)[None, :]
    mask = (head < heads) & (pair < WIDTH)
    low_ptr = x_ptr + head.to(tl.int64) * head_stride + pair
    low = tl.load(low_ptr, mask, other=0.0).to(tl.float32)
    high = tl.load(low_ptr + WIDTH, mask, other=0.0).to(tl.float32)
    tl.store(low_ptr, (low * cos - high * sin).to(x_ptr.dtype.element_ty), mask)
    tl.store(low_ptr + WIDTH, (high * cos + low * sin).to(x_ptr.dtype.element_ty), mask)


@triton.jit
def rope_kernel(
    q_ptr,
    k_ptr,
    cos_ptr,
    sin_ptr,
    q_stride,
    q_head_stride,
    k_stride,
    k_head_stride,
    cos_stride,
    sin_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    HEADS: tl.constexpr,
):
    QUERY_PARTS: tl.constexpr = (NUM_HEADS + HEADS - 1) // HEADS
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    pair = tl.arange(0, PAIRS)[None, :]
    cos = tl.load(cos_ptr + token * cos_stride + pair, pair < WIDTH, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * sin_stride + pair, pair < WIDTH, other=0.0).to(tl.float32)
    head = tl.arange(0, HEADS)[:, None]
    if part < QUERY_PARTS:
        head += part * HEADS
        _rotate(q_ptr + token * q_stride, q_head_stride, cos, sin, head, NUM_HEADS, WIDTH, PAIRS)
    else:
        head += (part - QUERY_PARTS) * HEADS
        _rotate(k_ptr + token * k_stride, k_head_stride, cos, sin, head, NUM_KV_HEADS, WIDTH, PAIRS)
