"""What surrounds dense attention of one sequence: keys and values in, partial results together."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.kernels.triton.encode import as_codes, decode, kind_of, knows_e4m3

TILE = 32
"""Positions or tokens of a program."""


def gather(layer: KvLayer, table_B: Tensor, begin: int, end: int, room: Tensor) -> None:
    """Keys and values of positions [begin, end) to `room`, `[2, K, L, H]`, in its type."""
    k, v = as_codes(layer.tensors["k"]), as_codes(layer.tensors["v"])
    _, kv_heads, page, head_dim = k.shape
    scales = layer.scales
    gather_kernel[(triton.cdiv(end - begin, TILE), kv_heads, 2)](
        k,
        v,
        room,
        table_B,
        table_B if scales is None else scales.k_K,
        table_B if scales is None else scales.v_K,
        begin,
        end,
        k.stride(0),
        k.stride(1),
        room.stride(0),
        room.stride(1),
        HEAD_DIM=head_dim,
        BLOCK_H=triton.next_power_of_2(head_dim),
        PAGE=page,
        BLOCK_L=TILE,
        KIND=kind_of(layer.encoding),
        NATIVE=knows_e4m3(k.device),
        SCALED=scales is not None,
        num_warps=4,
    )


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


def merge(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], out_NSH: Tensor) -> Tensor:
    """Attention to the keys of both, to `out`; gives the logarithm of all weights' sum `[N, S]`.

    Each: `[N, S, H]` of any strides, and the logarithm `[N, S]` of its weights' sum.
    """
    (a_NSH, a_NS), (b_NSH, b_NS) = first, second
    heads, tokens, head_dim = a_NSH.shape
    lse_NS = torch.empty(heads, tokens, dtype=torch.float32, device=a_NS.device)
    merge_kernel[(triton.cdiv(tokens, TILE), heads)](
        a_NSH,
        b_NSH,
        out_NSH,
        a_NS,
        b_NS,
        lse_NS,
        *a_NSH.stride()[:2],
        *b_NSH.stride()[:2],
        *out_NSH.stride()[:2],
        *a_NS.stride(),
        *b_NS.stride(),
        tokens,
        HEAD_DIM=head_dim,
        BLOCK_H=triton.next_power_of_2(head_dim),
        BLOCK_S=TILE,
        num_warps=4,
    )
    return lse_NS


@triton.jit(
    do_not_specialize=[
        "a_stride_head",
        "b_stride_head",
        "out_stride_head",
        "a_lse_stride_head",
        "b_lse_stride_head",
        "tokens",
    ]
)
def merge_kernel(
    a,
    b,
    out,
    a_lse,
    b_lse,
    out_lse,
    a_stride_head,
    a_stride_token,
    b_stride_head,
    b_stride_token,
    out_stride_head,
    out_stride_token,
    a_lse_stride_head,
    a_lse_stride_token,
    b_lse_stride_head,
    b_lse_stride_token,
    tokens,
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """One program: BLOCK_S tokens of one head. Every row has seen keys in both."""
    head = tl.program_id(1).to(tl.int64)
    token_S = tl.program_id(0).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)
    column_H = tl.arange(0, BLOCK_H)
    real_S = token_S < tokens
    real_SH = real_S[:, None] & (column_H < HEAD_DIM)[None, :]
    a += head * a_stride_head + token_S[:, None] * a_stride_token
    b += head * b_stride_head + token_S[:, None] * b_stride_token
    out += head * out_stride_head + token_S[:, None] * out_stride_token
    a_SH = tl.load(a + column_H[None, :], mask=real_SH, other=0).to(tl.float32)
    b_SH = tl.load(b + column_H[None, :], mask=real_SH, other=0).to(tl.float32)
    a_lse += head * a_lse_stride_head + token_S * a_lse_stride_token
    b_lse += head * b_lse_stride_head + token_S * b_lse_stride_token
    a_S = tl.load(a_lse, mask=real_S, other=0.0)
    b_S = tl.load(b_lse, mask=real_S, other=0.0)
    top_S = tl.maximum(a_S, b_S)
    a_S = tl.exp(a_S - top_S)
    b_S = tl.exp(b_S - top_S)
    sum_S = a_S + b_S
    both_SH = a_SH * (a_S / sum_S)[:, None] + b_SH * (b_S / sum_S)[:, None]
    tl.store(out + column_H[None, :], both_SH.to(out.dtype.element_ty), mask=real_SH)
    tl.store(out_lse + head * tokens + token_S, top_S + tl.log(sum_S), mask=real_S)
