"""What surrounds dense attention of one sequence: keys and values in, partial results together."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.encode_kernel import decode


@triton.jit(do_not_specialize=["begin", "end", "room_stride_kind", "room_stride_head"])
def gather_kernel(
    k,
    v,
    room,
    table,
    k_scale,
    v_scale,
    begin,
    end,
    pool_stride_block,
    pool_stride_head,
    room_stride_kind,
    room_stride_head,
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_L: tl.constexpr,
    KIND: tl.constexpr,
    NATIVE: tl.constexpr,
    SCALED: tl.constexpr,
):
    """One program: BLOCK_L positions of one head, keys or values."""
    head = tl.program_id(1).to(tl.int64)
    place_L = tl.program_id(0) * BLOCK_L + tl.arange(0, BLOCK_L)
    key_L = begin + place_L
    column_H = tl.arange(0, BLOCK_H)
    real_LH = (key_L < end)[:, None] & (column_H < HEAD_DIM)[None, :]
    page_L = tl.load(table + key_L // PAGE, mask=key_L < end, other=0).to(tl.int64)
    from_L = page_L * pool_stride_block + head * pool_stride_head + key_L % PAGE * HEAD_DIM
    pool, pool_scale = k, k_scale
    if tl.program_id(2) == 1:
        pool, pool_scale = v, v_scale
    tile_LH = tl.load(pool + from_L[:, None] + column_H[None, :], mask=real_LH, other=0)
    tile_LH = decode(tile_LH, KIND, NATIVE)
    if SCALED:
        tile_LH = tile_LH.to(tl.float32) * tl.load(pool_scale + head)
    room += tl.program_id(2).to(tl.int64) * room_stride_kind + head * room_stride_head
    to_LH = place_L[:, None] * HEAD_DIM + column_H[None, :]
    tl.store(room + to_LH, tile_LH.to(room.dtype.element_ty), mask=real_LH)


@triton.jit
def load_sums(sums, at_S, known_S):
    """Of a part that is not there nothing has any weight."""
    return tl.load(sums + at_S, mask=known_S, other=float("-inf"))


@triton.jit
def load_rows(part, at_SH, known_SH):
    """Rows begin at multiples of 16 bytes; said here, it needs no variant of the kernel."""
    return tl.load(tl.multiple_of(part + at_SH, (16, 16)), mask=known_SH, other=0)


@triton.jit
def weighted(part_SH, weight_S):
    """A part of which a row has seen no keys may hold anything there."""
    weight_S1 = weight_S[:, None]
    return tl.where(weight_S1 > 0, part_SH.to(tl.float32) * weight_S1, 0.0)


@triton.jit(
    do_not_specialize=[
        "count",
        "skipped",
        "tokens",
        "part_stride_head",
        "part_stride_token",
        "lse_stride_head",
        "lse_stride_token",
        "out_stride_head",
        "out_stride_token",
    ],
    do_not_specialize_on_alignment=[
        "a",
        "b",
        "c",
        "d",
        "a_lse",
        "b_lse",
        "c_lse",
        "d_lse",
        "out",
        "out_lse",
    ],
)
def combine_kernel(
    a,
    b,
    c,
    d,
    a_lse,
    b_lse,
    c_lse,
    d_lse,
    out,
    out_lse,
    count,
    skipped,
    tokens,
    part_stride_head,
    part_stride_token,
    lse_stride_head,
    lse_stride_token,
    out_stride_head,
    out_stride_token,
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_S: tl.constexpr,
    KEPT: tl.constexpr,
):
    """One program: BLOCK_S tokens of one head. Programs side by side read heads that are.

    a to d: the first `count` are parts, all laid out alike, whose rows from `skipped` on are the
    tokens. Rows that have seen no keys in any of them get 0. KEPT: `out_lse` gets the sums, laid
    out as those of the parts.
    """
    head = tl.program_id(0).to(tl.int64)
    token_S = tl.program_id(1).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)
    column_H = tl.arange(0, BLOCK_H)
    real_S = token_S < tokens
    real_SH = real_S[:, None] & (column_H < HEAD_DIM)[None, :]
    row_S = skipped + token_S
    at_SH = (head * part_stride_head + row_S * part_stride_token)[:, None] + column_H[None, :]
    # All are loaded before any is needed; what a mask leaves out costs no memory's time.
    a_SH = load_rows(a, at_SH, real_SH)
    b_SH = load_rows(b, at_SH, real_SH & (count > 1))
    c_SH = load_rows(c, at_SH, real_SH & (count > 2))
    d_SH = load_rows(d, at_SH, real_SH & (count > 3))
    lse_S = head * lse_stride_head + row_S * lse_stride_token
    a_S = load_sums(a_lse, lse_S, real_S)
    b_S = load_sums(b_lse, lse_S, real_S & (count > 1))
    c_S = load_sums(c_lse, lse_S, real_S & (count > 2))
    d_S = load_sums(d_lse, lse_S, real_S & (count > 3))
    top_S = tl.maximum(tl.maximum(a_S, b_S), tl.maximum(c_S, d_S))
    base_S = tl.where(top_S == float("-inf"), 0.0, top_S)
    a_S = tl.exp(a_S - base_S)
    b_S = tl.exp(b_S - base_S)
    c_S = tl.exp(c_S - base_S)
    d_S = tl.exp(d_S - base_S)
    sum_S = (a_S + b_S) + (c_S + d_S)
    sees_S = sum_S > 0
    sum_S = tl.where(sees_S, sum_S, 1.0)
    all_SH = weighted(a_SH, a_S / sum_S) + weighted(b_SH, b_S / sum_S)
    all_SH += weighted(c_SH, c_S / sum_S) + weighted(d_SH, d_S / sum_S)
    to_SH = (head * out_stride_head + token_S * out_stride_token)[:, None] + column_H[None, :]
    to_SH = tl.multiple_of(out + to_SH, (16, 16))
    tl.store(to_SH, all_SH.to(out.dtype.element_ty), mask=real_SH)
    if KEPT:
        kept_S = tl.where(sees_S, base_S + tl.log(sum_S), float("-inf"))
        tl.store(out_lse + lse_S, kept_S, mask=real_S)
