"""Rotary position embedding in the GPT-NeoX order: the halves of a head are rotated."""

import triton
import triton.language as tl
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.launch import amount_config, power_of_two
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.support import TritonConfig


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


class TritonRope(TritonOperation):
    """In place, in float32, rounded once; strided views of a merged projection are fine."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = Configs("rope")

    def __call__(
        self, q_TNH: Tensor, k_TKH: Tensor, cos_TW: Tensor, sin_TW: Tensor
    ) -> tuple[Tensor, Tensor]:
        q_TNH, k_TKH, cos_TW, sin_TW = map(_dense, (q_TNH, k_TKH, cos_TW, sin_TW))
        tokens, width = cos_TW.shape
        heads, kv_heads = q_TNH.shape[1], k_TKH.shape[1]
        config = amount_config(self._configs, q_TNH.numel(), q_TNH.dtype, q_TNH)
        size = config["HEADS"]
        if tokens and width:
            rope_kernel[(tokens, triton.cdiv(heads, size) + triton.cdiv(kv_heads, size))](
                q_TNH,
                k_TKH,
                cos_TW,
                sin_TW,
                *q_TNH.stride()[:2],
                *k_TKH.stride()[:2],
                cos_TW.stride(0),
                sin_TW.stride(0),
                NUM_HEADS=heads,
                NUM_KV_HEADS=kv_heads,
                WIDTH=width,
                PAIRS=power_of_two(width),
                **config,
            )
        return q_TNH, k_TKH


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
