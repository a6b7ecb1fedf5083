"""Causal attention of tiles of tokens to keys and values of each head that lie side by side.

Rows M (tokens) and keys N of a tile; entries of a query or key: P that are not rotated, W that are,
which all heads share in keys; V entries of a value; X a value and the plain part of a key.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.prefill_kernel import FIELDS

CARRIED: tl.constexpr = tl.constexpr(1)
"""Of a piece: goes on from its part, which an earlier launch left."""
KEPT: tl.constexpr = tl.constexpr(2)
"""Leaves its part to others, rather than the result."""


@triton.jit
def latent_prefill_kernel(
    q,
    heads,
    stored,
    out,
    work,
    parts,
    parts_lse,
    scale,
    q_stride_token,
    q_stride_head,
    out_stride_token,
    out_stride_head,
    HEADS: tl.constexpr,
    RANK: tl.constexpr,
    ROTATED: tl.constexpr,
    PLAIN: tl.constexpr,
    VALUE: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program: a piece of work for one head.

    heads `[key, N, X]`, stored `[key, R + W]`, work: rows of `Piece`. parts `[part, N, M, V]` and
    parts_lse `[part, N, M]` (base 2): of pieces that have some. scale: of the scores, times
    log2(e). DOT: type of the products' operands.
    """
    head = tl.program_id(0) % HEADS
    piece = work + (tl.program_id(0) // HEADS) * FIELDS
    place = tl.load(piece).to(tl.int64)
    token = tl.load(piece + 1).to(tl.int64)
    tokens = tl.load(piece + 2)
    position = tl.load(piece + 3)
    keys = tl.load(piece + 4)
    heads += place * (HEADS * (VALUE + PLAIN)) + head * (VALUE + PLAIN)
    stored += place * (RANK + ROTATED) + RANK

    row_M = tl.arange(0, BLOCK_M)
    real_M = row_M < tokens
    column_P = tl.arange(0, BLOCK_P)
    column_W = tl.arange(0, BLOCK_W)
    column_V = tl.arange(0, BLOCK_V)
    where_M = q + (token + row_M) * q_stride_token + head * q_stride_head
    known_MP = real_M[:, None] & (column_P < PLAIN)[None, :]
    known_MW = real_M[:, None] & (column_W < ROTATED)[None, :]
    q_MP = tl.load(where_M[:, None] + column_P[None, :], mask=known_MP, other=0.0).to(DOT)
    q_MW = tl.load(where_M[:, None] + PLAIN + column_W[None, :], mask=known_MW, other=0.0).to(DOT)
    position_M = position + tl.minimum(row_M, tokens - 1)

    flags = tl.load(piece + 6)
    part_M = (tl.load(piece + 5).to(tl.int64) * HEADS + head) * BLOCK_M + row_M
    part_MV = parts + part_M[:, None] * BLOCK_V + column_V[None, :]
    carried_M = real_M & (flags & CARRIED > 0)
    top_M = tl.load(parts_lse + part_M, mask=carried_M, other=float("-inf"))
    sum_M = tl.where(top_M > float("-inf"), 1.0, 0.0)
    acc_MV = tl.load(part_MV, mask=carried_M[:, None], other=0.0)

    # Tiles of keys that every row sees whole, and after them those that need a mask.
    whole = tl.maximum(tl.minimum(position + 1, keys), 0) // BLOCK_N * BLOCK_N
    top_M, sum_M, acc_MV = _attend(
        top_M, sum_M, acc_MV, q_MP, q_MW, heads, stored, position_M, scale, 0, whole, keys,
        HEADS, RANK, ROTATED, PLAIN, VALUE, BLOCK_W, BLOCK_P, BLOCK_V, BLOCK_N, DOT, False,
    )  # fmt: skip
    top_M, sum_M, acc_MV = _attend(
        top_M, sum_M, acc_MV, q_MP, q_MW, heads, stored, position_M, scale, whole, keys, keys,
        HEADS, RANK, ROTATED, PLAIN, VALUE, BLOCK_W, BLOCK_P, BLOCK_V, BLOCK_N, DOT, True,
    )  # fmt: skip

    # A piece may hold nothing that a row sees.
    total_M = tl.where(sum_M == 0.0, 1.0, sum_M)
    result_MV = acc_MV / total_M[:, None]
    if flags & KEPT > 0:
        lse_M = tl.where(sum_M == 0.0, float("-inf"), top_M + tl.log2(total_M))
        tl.store(parts_lse + part_M, lse_M)
        tl.store(part_MV, result_MV)
    else:
        to_M = out + (token + row_M) * out_stride_token + head * out_stride_head
        known_MV = real_M[:, None] & (column_V < VALUE)[None, :]
        rounded_MV = result_MV.to(out.dtype.element_ty)
        tl.store(to_M[:, None] + column_V[None, :], rounded_MV, mask=known_MV)


@triton.jit
def _attend(
    top_M, sum_M, acc_MV, q_MP, q_MW, heads, stored, position_M, scale, begin, end, keys,
    HEADS: tl.constexpr, RANK: tl.constexpr, ROTATED: tl.constexpr, PLAIN: tl.constexpr,
    VALUE: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_N: tl.constexpr, DOT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end) to the running softmax of the rows. MASKED: some rows do not
    see all of them, or there are fewer than whole tiles of them."""
    column_P = tl.arange(0, BLOCK_P)
    column_W = tl.arange(0, BLOCK_W)
    column_V = tl.arange(0, BLOCK_V)
    for start in tl.range(begin, end, BLOCK_N):
        key_N = start + tl.arange(0, BLOCK_N)
        real_N = key_N < keys
        x_N = heads + key_N * (HEADS * (VALUE + PLAIN))
        w_N = stored + key_N * (RANK + ROTATED)
        k_PN = _tile(
            x_N[None, :] + VALUE + column_P[:, None], (column_P < PLAIN)[:, None], real_N[None, :],
            BLOCK_P != PLAIN, MASKED,
        )  # fmt: skip
        k_WN = _tile(
            w_N[None, :] + column_W[:, None], (column_W < ROTATED)[:, None], real_N[None, :],
            BLOCK_W != ROTATED, MASKED,
        )  # fmt: skip
        v_NV = _tile(
            x_N[:, None] + column_V[None, :], (column_V < VALUE)[None, :], real_N[:, None],
            BLOCK_V != VALUE, MASKED,
        )  # fmt: skip
        score_MN = tl.dot(q_MP, k_PN.to(DOT), input_precision="ieee")
        score_MN = tl.dot(q_MW, k_WN.to(DOT), score_MN, input_precision="ieee")
        if MASKED:
            seen_MN = (key_N[None, :] <= position_M[:, None]) & real_N[None, :]
            score_MN = tl.where(seen_MN, score_MN, float("-inf"))
        new_M = tl.maximum(top_M, tl.max(score_MN, 1) * scale)
        base_M = new_M
        if MASKED:
            # A row that has seen nothing yet: its sums stay 0, rather than become NaN.
            base_M = tl.where(new_M == float("-inf"), 0.0, new_M)
        weight_MN = tl.exp2(score_MN * scale - base_M[:, None])
        shrink_M = tl.exp2(top_M - base_M)
        sum_M = sum_M * shrink_M + tl.sum(weight_MN, 1)
        acc_MV = acc_MV * shrink_M[:, None]
        acc_MV = tl.dot(weight_MN.to(DOT), v_NV.to(DOT), acc_MV, input_precision="ieee")
        top_M = new_M
    return top_M, sum_M, acc_MV


@triton.jit
def _tile(pointers, entry, real, PADDED: tl.constexpr, MASKED: tl.constexpr):
    if MASKED:
        tile = tl.load(pointers, mask=entry & real, other=0)
    elif PADDED:
        tile = tl.load(pointers, mask=entry, other=0)
    else:
        tile = tl.load(pointers)
    return tile
