"""Puts a step's keys and values into their slots."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.encode_kernel import encode


@triton.jit
def _write(
    new,
    pool,
    scales,
    slots,
    row,
    rows,
    stride,
    head_stride,
    pool_stride,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
):
    token = (row // KV_HEADS).to(tl.int64)
    head = row % KV_HEADS
    slot = tl.load(slots + token, row < rows, other=-1)
    entry = tl.arange(0, WIDTH)[None, :]
    mask = (slot >= 0)[:, None] & (entry < HEAD_DIM)
    source = new + (token * stride + head * head_stride)[:, None] + entry
    x = tl.load(source, mask, other=0.0).to(tl.float32)
    scale = 1.0
    if SCALED:
        scale = tl.load(scales + head)[:, None]
    code = encode(x, scale, KIND)
    place = head * (BLOCK_SIZE * HEAD_DIM) + slot % BLOCK_SIZE * HEAD_DIM
    target = pool + (slot // BLOCK_SIZE * pool_stride + place)[:, None] + entry
    tl.store(target, code.to(pool.dtype.element_ty), mask)


@triton.jit(do_not_specialize=["rows"])
def kv_write_kernel(
    k,
    v,
    k_pool,
    v_pool,
    k_scales,
    v_scales,
    slots,
    rows,
    k_stride,
    k_head_stride,
    v_stride,
    v_head_stride,
    k_pool_stride,
    v_pool_stride,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A row is one head of one token. The second axis of the grid: keys, values."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    if tl.program_id(1) == 0:
        _write(
            k, k_pool, k_scales, slots, row, rows, k_stride, k_head_stride, k_pool_stride,
            KV_HEADS, HEAD_DIM, WIDTH, BLOCK_SIZE, KIND, SCALED,
        )  # fmt: skip
    else:
        _write(
            v, v_pool, v_scales, slots, row, rows, v_stride, v_head_stride, v_pool_stride,
            KV_HEADS, HEAD_DIM, WIDTH, BLOCK_SIZE, KIND, SCALED,
        )  # fmt: skip
