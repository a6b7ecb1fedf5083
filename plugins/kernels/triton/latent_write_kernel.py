"""Rotates queries, norms and rotates what latent attention stores of tokens, and stores it."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous
from jackfield.plugins.kernels.triton.encode_kernel import encode


@triton.jit
def _rotated(
    x, cos, sin, known,
    WIDTH: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Both halves, in float32 with the precision of the model. x: where the pairs begin."""
    pair = tl.arange(0, PAIRS)[None, :]
    real = pair < WIDTH
    step: tl.constexpr = 2 if INTERLEAVED else 1
    apart: tl.constexpr = 1 if INTERLEAVED else WIDTH
    low = tl.load(x + step * pair, known & real, other=0.0).to(tl.float32)
    high = tl.load(x + step * pair + apart, known & real, other=0.0).to(tl.float32)
    cos = tl.load(cos + pair, real, other=0.0)
    sin = tl.load(sin + pair, real, other=0.0)
    first = (low * cos - high * sin).to(TYPE).to(tl.float32)
    second = (high * cos + low * sin).to(TYPE).to(tl.float32)
    return first, second


@triton.jit
def _store(to, entry, value, known):
    tl.store(to + entry, value.to(to.dtype.element_ty), known)


@triton.jit
def _rotate(
    q, cos, sin, known, WIDTH: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr
):
    """q: where the pairs of each head begin."""
    pair = tl.arange(0, PAIRS)[None, :]
    TYPE: tl.constexpr = q.dtype.element_ty
    first, second = _rotated(q, cos, sin, known, WIDTH, PAIRS, INTERLEAVED, TYPE)
    # Others of the program may yet have to read what is about to be overwritten.
    tl.debug_barrier()
    known = known & (pair < WIDTH)
    _store(q, pair, first, known)
    _store(q, pair + WIDTH, second, known)


@triton.jit
def _write(
    stored, to, norm, eps, cos, sin, scale, written,
    RANK: tl.constexpr, WIDTH: tl.constexpr, BLOCK_R: tl.constexpr, PAIRS: tl.constexpr,
    INTERLEAVED: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """stored: one token's, as it was projected. to: its place in the pool."""
    TYPE: tl.constexpr = stored.dtype.element_ty
    entry = tl.arange(0, BLOCK_R)[None, :]
    real = entry < RANK
    x = tl.load(stored + entry, real, other=0.0).to(tl.float32)
    weight = tl.load(norm + entry, real, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(x * x, 1) / RANK + eps)[:, None]
    x = (x * factor * weight).to(TYPE).to(tl.float32)
    _store(to, entry, encode(x, scale, KIND), real & written)
    pair = tl.arange(0, PAIRS)[None, :]
    whole = tl.full([1, 1], 1, tl.int1)
    first, second = _rotated(stored + RANK, cos, sin, whole, WIDTH, PAIRS, INTERLEAVED, TYPE)
    known = (pair < WIDTH) & written
    _store(to + RANK, pair, encode(first, scale, KIND), known)
    _store(to + RANK + WIDTH, pair, encode(second, scale, KIND), known)


@triton.jit
def latent_write_kernel(
    q,
    stored,
    norm,
    eps,
    cos,
    sin,
    pool,
    scales,
    slots,
    q_stride_token,
    stored_stride_token,
    cos_stride_token,
    sin_stride_token,
    pool_stride_block,
    NUM_HEADS: tl.constexpr,
    PLAIN: tl.constexpr,
    RANK: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_R: tl.constexpr,
    PAIRS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    HEADS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program: some heads' queries of one token, in place, or what is stored of it.

    WIDTH: pairs. INTERLEAVED: they lie side by side, and become halves.
    """
    wait_for_previous(EARLY)
    PARTS: tl.constexpr = (NUM_HEADS + HEADS - 1) // HEADS + 1
    token = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    cos += token * cos_stride_token
    sin += token * sin_stride_token
    if part > 0:
        head = (part - 1) * HEADS + tl.arange(0, HEADS)[:, None]
        to = q + token * q_stride_token + head * (PLAIN + 2 * WIDTH) + PLAIN
        _rotate(to, cos, sin, head < NUM_HEADS, WIDTH, PAIRS, INTERLEAVED)
    else:
        slot = tl.load(slots + token)
        place = slot // BLOCK_SIZE * pool_stride_block
        place += slot % BLOCK_SIZE * (RANK + 2 * WIDTH)
        scale = 1.0
        if SCALED:
            scale = tl.load(scales)
        _write(
            stored + token * stored_stride_token, pool + place, norm, eps, cos, sin, scale,
            slot >= 0, RANK, WIDTH, BLOCK_R, PAIRS, INTERLEAVED, KIND,
        )  # fmt: skip
