"""Norms and rotates queries and keys, and stores keys and values.

A program has some heads of one kind of one token. A head is held in three parts: the two halves
that are rotated against each other, and the rest.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous
from jackfield.plugins.kernels.triton.encode_kernel import encode


@triton.jit
def _load_part(ptr, start, count: tl.constexpr, BLOCK: tl.constexpr, known):
    entry = tl.arange(0, BLOCK)[None, :]
    return tl.load(ptr + start + entry, known & (entry < count), other=0.0).to(tl.float32)


@triton.jit
def _store_part(ptr, start, count: tl.constexpr, BLOCK: tl.constexpr, known, value):
    entry = tl.arange(0, BLOCK)[None, :]
    tl.store(ptr + start + entry, value.to(ptr.dtype.element_ty), known & (entry < count))


@triton.jit
def _normed(
    x,
    factor,
    weight_ptr,
    start,
    count: tl.constexpr,
    BLOCK: tl.constexpr,
    TYPE: tl.constexpr,
):
    """Rounded as a norm's output is that stands for itself."""
    weight = _load_part(weight_ptr, start, count, BLOCK, tl.full([1, 1], 1, tl.int1))
    return (x * factor * weight).to(TYPE).to(tl.float32)


@triton.jit
def _norm_and_rotate(
    x_ptr,
    weight_ptr,
    eps,
    cos_ptr,
    sin_ptr,
    known,
    HEAD: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    REST: tl.constexpr,
    NORMED: tl.constexpr,
):
    """Two rotated halves and the rest of heads, in float32 with the precision of the model."""
    OTHERS: tl.constexpr = HEAD - 2 * WIDTH
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    low = _load_part(x_ptr, 0, WIDTH, PAIRS, known)
    high = _load_part(x_ptr, WIDTH, WIDTH, PAIRS, known)
    rest = _load_part(x_ptr, 2 * WIDTH, OTHERS, REST, known)
    if NORMED:
        total = tl.sum(low * low, 1) + tl.sum(high * high, 1) + tl.sum(rest * rest, 1)
        factor = tl.rsqrt(total / HEAD + eps)[:, None]
        low = _normed(low, factor, weight_ptr, 0, WIDTH, PAIRS, TYPE)
        high = _normed(high, factor, weight_ptr, WIDTH, WIDTH, PAIRS, TYPE)
        rest = _normed(rest, factor, weight_ptr, 2 * WIDTH, OTHERS, REST, TYPE)
    always = tl.full([1, 1], 1, tl.int1)
    cos = _load_part(cos_ptr, 0, WIDTH, PAIRS, always)
    sin = _load_part(sin_ptr, 0, WIDTH, PAIRS, always)
    rotated_low = (low * cos - high * sin).to(TYPE).to(tl.float32)
    rotated_high = (high * cos + low * sin).to(TYPE).to(tl.float32)
    return rotated_low, rotated_high, rest


@triton.jit
def _query(
    x_ptr,
    weight_ptr,
    eps,
    cos_ptr,
    sin_ptr,
    known,
    HEAD: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    REST: tl.constexpr,
    NORMED: tl.constexpr,
):
    low, high, rest = _norm_and_rotate(
        x_ptr, weight_ptr, eps, cos_ptr, sin_ptr, known, HEAD, WIDTH, PAIRS, REST, NORMED
    )
    _store_part(x_ptr, 0, WIDTH, PAIRS, known, low)
    _store_part(x_ptr, WIDTH, WIDTH, PAIRS, known, high)
    if NORMED:
        _store_part(x_ptr, 2 * WIDTH, HEAD - 2 * WIDTH, REST, known, rest)


@triton.jit
def _key(
    x_ptr,
    weight_ptr,
    eps,
    cos_ptr,
    sin_ptr,
    page_ptr,
    scale,
    known,
    HEAD: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    REST: tl.constexpr,
    NORMED: tl.constexpr,
    KIND: tl.constexpr,
):
    low, high, rest = _norm_and_rotate(
        x_ptr, weight_ptr, eps, cos_ptr, sin_ptr, known, HEAD, WIDTH, PAIRS, REST, NORMED
    )
    _store_part(page_ptr, 0, WIDTH, PAIRS, known, encode(low, scale, KIND))
    _store_part(page_ptr, WIDTH, WIDTH, PAIRS, known, encode(high, scale, KIND))
    _store_part(page_ptr, 2 * WIDTH, HEAD - 2 * WIDTH, REST, known, encode(rest, scale, KIND))


@triton.jit
def _value(
    x_ptr,
    page_ptr,
    scale,
    known,
    HEAD: tl.constexpr,
    WHOLE: tl.constexpr,
    KIND: tl.constexpr,
):
    value = _load_part(x_ptr, 0, HEAD, WHOLE, known)
    _store_part(page_ptr, 0, HEAD, WHOLE, known, encode(value, scale, KIND))


@triton.jit
def _scale(scale_ptr, head, NUM_KV_HEADS: tl.constexpr, SCALED: tl.constexpr):
    if SCALED:
        return tl.load(scale_ptr + head, head < NUM_KV_HEADS, other=1.0)
    return tl.full(head.shape, 1.0, tl.float32)


@triton.jit
def qk_norm_rope_write_kernel(
    qkv_ptr,
    qkv_stride,
    cos_ptr,
    cos_stride,
    sin_ptr,
    sin_stride,
    query_weight_ptr,
    key_weight_ptr,
    eps,
    k_ptr,
    v_ptr,
    block_stride,
    kv_head_stride,
    position_stride,
    k_scale_ptr,
    v_scale_ptr,
    slots_ptr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    REST: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    NORMED: tl.constexpr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    HEADS: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_previous(EARLY)
    QUERY_PARTS: tl.constexpr = (NUM_HEADS + HEADS - 1) // HEADS
    KV_PARTS: tl.constexpr = (NUM_KV_HEADS + HEADS - 1) // HEADS
    PARTS: tl.constexpr = QUERY_PARTS + 2 * KV_PARTS
    token = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    qkv_ptr += token * qkv_stride
    cos_ptr += token * cos_stride
    sin_ptr += token * sin_stride
    head = tl.arange(0, HEADS)[:, None]
    if part < QUERY_PARTS:
        head += part * HEADS
        _query(
            qkv_ptr + head * HEAD, query_weight_ptr, eps, cos_ptr, sin_ptr, head < NUM_HEADS,
            HEAD, WIDTH, PAIRS, REST, NORMED,
        )  # fmt: skip
    else:
        slot = tl.load(slots_ptr + token)
        head += (part - QUERY_PARTS) % KV_PARTS * HEADS
        known = (head < NUM_KV_HEADS) & (slot >= 0)
        page = slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * position_stride
        page += head.to(tl.int64) * kv_head_stride
        x_ptr = qkv_ptr + (NUM_HEADS + head) * HEAD
        if part < QUERY_PARTS + KV_PARTS:
            scale = _scale(k_scale_ptr, head, NUM_KV_HEADS, SCALED)
            _key(
                x_ptr, key_weight_ptr, eps, cos_ptr, sin_ptr, k_ptr + page, scale, known,
                HEAD, WIDTH, PAIRS, REST, NORMED, KIND,
            )  # fmt: skip
        else:
            scale = _scale(v_scale_ptr, head, NUM_KV_HEADS, SCALED)
            x_ptr += NUM_KV_HEADS * HEAD
            _value(x_ptr, v_ptr + page, scale, known, HEAD, WHOLE, KIND)
