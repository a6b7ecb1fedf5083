"""Causal attention of tiles of query rows to paged keys and values.

A row is one token and one query head: those of a group that read the same keys lie side by side,
PACK heads of each token. Rows M, keys N and head size H of a tile; W fields of a piece of work.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.encode_kernel import decode

FIELDS: tl.constexpr = tl.constexpr(8)
"""Of a piece of work, those of `Piece` in front: rows of that width are always aligned."""


@triton.jit(do_not_specialize=["table_stride"])
def prefill_kernel(
    q,
    k,
    v,
    out,
    table,
    work,
    k_scale,
    v_scale,
    parts,
    parts_lse,
    scale,
    q_stride_token,
    q_stride_head,
    out_stride_token,
    out_stride_head,
    table_stride,
    pool_stride_block,
    pool_stride_head,
    LANES: tl.constexpr,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    KIND: tl.constexpr,
    NATIVE: tl.constexpr,
    SCALED: tl.constexpr,
    SPLIT: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program: a piece of work for PACK heads of one key/value head, which is a lane.

    scale: of the scores, times log2(e). WINDOW: 0 = none. DOT: type of the products' operands.
    SPLIT: several pieces share their rows; each leaves a part, which others join.
    """
    program = tl.program_id(0)
    lane = program % LANES
    piece = work + (program // LANES) * FIELDS
    PACKS: tl.constexpr = (GROUP + PACK - 1) // PACK
    kv_head = lane // PACKS
    first_head = (lane % PACKS) * PACK

    slice_index = tl.load(piece).to(tl.int64)
    token = tl.load(piece + 1).to(tl.int64)
    tokens = tl.load(piece + 2)
    position = tl.load(piece + 3)
    begin = tl.load(piece + 4)
    end = tl.load(piece + 5)
    table += slice_index * table_stride
    k += kv_head.to(tl.int64) * pool_stride_head
    v += kv_head.to(tl.int64) * pool_stride_head

    row_M = tl.arange(0, BLOCK_M)
    column_H = tl.arange(0, BLOCK_H)
    token_M = row_M // PACK
    head_M = first_head + row_M % PACK
    real_M = (token_M < tokens) & (head_M < GROUP)
    real_MH = real_M[:, None] & (column_H < HEAD_DIM)[None, :]
    head_M += kv_head * GROUP
    q += token * q_stride_token
    where_M = token_M * q_stride_token + head_M * q_stride_head
    q_MH = tl.load(q + where_M[:, None] + column_H[None, :], mask=real_MH, other=0.0).to(DOT)
    position_M = position + tl.minimum(token_M, tokens - 1)

    if SCALED:
        scale *= tl.load(k_scale + kv_head)
    top_M, sum_M, acc_MH = _attend_all(
        q_MH, k, v, table, position, tokens, position_M, scale, pool_stride_block, begin, end,
        HEAD_DIM, BLOCK_H, PAGE, BLOCK_M, BLOCK_N, WINDOW, KIND, NATIVE, DOT,
    )  # fmt: skip
    factor = 1.0
    if SCALED:
        factor = tl.load(v_scale + kv_head)
    if SPLIT:
        row = program.to(tl.int64) * BLOCK_M
        _store_part(
            parts + row * BLOCK_H, parts_lse + row, top_M, sum_M, acc_MH, factor, BLOCK_M, BLOCK_H
        )
    else:
        out += token * out_stride_token
        where_M = token_M * out_stride_token + head_M * out_stride_head
        result_MH = acc_MH * (factor / sum_M)[:, None]
        result_MH = result_MH.to(out.dtype.element_ty)
        tl.store(out + where_M[:, None] + column_H[None, :], result_MH, mask=real_MH)


@triton.jit
def _store_part(
    parts, lse, top_M, sum_M, acc_MH, factor, BLOCK_M: tl.constexpr, BLOCK_H: tl.constexpr
):
    """What one piece found. That of a window may hold nothing for a row."""
    row_M = tl.arange(0, BLOCK_M)
    whole_M = tl.where(sum_M == 0.0, 1.0, sum_M)
    lse_M = tl.where(sum_M == 0.0, float("-inf"), top_M + tl.log2(whole_M))
    tl.store(lse + row_M, lse_M)
    where_MH = row_M[:, None] * BLOCK_H + tl.arange(0, BLOCK_H)[None, :]
    tl.store(parts + where_MH, acc_MH * (factor / whole_M)[:, None])


@triton.jit
def _attend_all(
    q_MH, k, v, table, position, tokens, position_M, scale, pool_stride_block, begin, end,
    HEAD_DIM: tl.constexpr, BLOCK_H: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WINDOW: tl.constexpr,
    KIND: tl.constexpr, NATIVE: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """The softmax of the rows over the keys of a piece: largest score, sum, weighted values."""
    top_M = tl.full([BLOCK_M], float("-inf"), tl.float32)
    sum_M = tl.zeros([BLOCK_M], tl.float32)
    acc_MH = tl.zeros([BLOCK_M, BLOCK_H], tl.float32)
    # Tiles of keys that every row sees whole, and before and after them those that need a mask.
    last = position + tokens - 1
    whole_end = tl.minimum((position + 1) // BLOCK_N * BLOCK_N, end)
    seen = begin
    whole_begin = begin // BLOCK_N * BLOCK_N
    if WINDOW > 0:
        seen = tl.maximum(begin, position + 1 - WINDOW)
        whole_begin = (tl.maximum(seen, last + 1 - WINDOW) + BLOCK_N - 1) // BLOCK_N * BLOCK_N
        top_M, sum_M, acc_MH = _attend(
            top_M, sum_M, acc_MH, q_MH, k, v, table, position_M, scale, pool_stride_block,
            seen // BLOCK_N * BLOCK_N, tl.minimum(whole_begin, end), seen, end,
            HEAD_DIM, BLOCK_H, PAGE, BLOCK_N, WINDOW, KIND, NATIVE, DOT, True,
        )  # fmt: skip
    top_M, sum_M, acc_MH = _attend(
        top_M, sum_M, acc_MH, q_MH, k, v, table, position_M, scale, pool_stride_block,
        whole_begin, whole_end, seen, end,
        HEAD_DIM, BLOCK_H, PAGE, BLOCK_N, WINDOW, KIND, NATIVE, DOT, False,
    )  # fmt: skip
    return _attend(
        top_M, sum_M, acc_MH, q_MH, k, v, table, position_M, scale, pool_stride_block,
        tl.maximum(whole_begin, whole_end), end, seen, end,
        HEAD_DIM, BLOCK_H, PAGE, BLOCK_N, WINDOW, KIND, NATIVE, DOT, True,
    )  # fmt: skip


@triton.jit
def _attend(
    top_M,
    sum_M,
    acc_MH,
    q_MH,
    k,
    v,
    table,
    position_M,
    scale,
    pool_stride_block,
    begin,
    stop,
    seen,
    end,
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    KIND: tl.constexpr,
    NATIVE: tl.constexpr,
    DOT: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Adds the keys of [begin, stop), which begins at a tile, to the running softmax of the rows.

    Only positions of [seen, end) are read. MASKED: some rows do not see all of these keys.
    """
    key_N = tl.arange(0, BLOCK_N)
    column_H = tl.arange(0, BLOCK_H)
    head_H = column_H < HEAD_DIM
    page = _page(table, begin, end, PAGE, BLOCK_N)
    for start in tl.range(begin, stop, BLOCK_N):
        where_N = _where(page, start, pool_stride_block, HEAD_DIM, PAGE, BLOCK_N)
        # Read a tile ahead: a load that waits for the number of its page is not pipelined.
        page = _page(table, start + BLOCK_N, end, PAGE, BLOCK_N)
        real_N = (start + key_N >= seen) & (start + key_N < end)
        k_HN = _tile(
            k + where_N[None, :] + column_H[:, None], head_H[:, None], real_N[None, :],
            BLOCK_H != HEAD_DIM, MASKED,
        )  # fmt: skip
        v_NH = _tile(
            v + where_N[:, None] + column_H[None, :], head_H[None, :], real_N[:, None],
            BLOCK_H != HEAD_DIM, MASKED,
        )  # fmt: skip
        k_HN = decode(k_HN, KIND, NATIVE).to(DOT)
        score_MN = tl.dot(q_MH, k_HN, input_precision="ieee")
        if MASKED:
            visible_MN = start + key_N[None, :] <= position_M[:, None]
            visible_MN &= real_N[None, :]
            if WINDOW > 0:
                visible_MN &= start + key_N[None, :] > position_M[:, None] - WINDOW
            score_MN = tl.where(visible_MN, score_MN, float("-inf"))
        new_M = tl.maximum(top_M, tl.max(score_MN, 1) * scale)
        base_M = new_M
        if MASKED:
            # A row that has seen nothing yet: its sums stay 0, rather than become NaN.
            base_M = tl.where(new_M == float("-inf"), 0.0, new_M)
        weight_MN = tl.exp2(score_MN * scale - base_M[:, None])
        shrink_M = tl.exp2(top_M - base_M)
        sum_M = sum_M * shrink_M + tl.sum(weight_MN, 1)
        acc_MH = acc_MH * shrink_M[:, None]
        v_NH = decode(v_NH, KIND, NATIVE).to(DOT)
        acc_MH = tl.dot(weight_MN.to(DOT), v_NH, acc_MH, input_precision="ieee")
        top_M = new_M
    return top_M, sum_M, acc_MH


@triton.jit
def _page(table, start, end, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """The block of each key of a tile, or the one of all of them."""
    if PAGE % BLOCK_N == 0:
        page = tl.load(table + start // PAGE, mask=start < end, other=0)
    else:
        key_N = tl.arange(0, BLOCK_N)
        # Tiles begin at multiples of BLOCK_N: what does not depend on `start` leaves the loop.
        inner: tl.constexpr = BLOCK_N % PAGE == 0
        block_N = start // PAGE + key_N // PAGE if inner else (start + key_N) // PAGE
        page = tl.load(table + block_N, mask=start + key_N < end, other=0)
    return page


@triton.jit
def _where(
    page,
    start,
    pool_stride_block,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Where the keys of a tile begin in the pool."""
    key_N = tl.arange(0, BLOCK_N)
    if PAGE % BLOCK_N == 0:
        slot_N = start % PAGE + key_N
    elif BLOCK_N % PAGE == 0:
        slot_N = key_N % PAGE
    else:
        slot_N = (start + key_N) % PAGE
    return page.to(tl.int64) * pool_stride_block + slot_N * HEAD_DIM


@triton.jit
def _tile(
    pointers,
    head,
    real,
    PADDED: tl.constexpr,
    MASKED: tl.constexpr,
):
    if MASKED:
        tile = tl.load(pointers, mask=head & real, other=0)
    elif PADDED:
        tile = tl.load(pointers, mask=head, other=0)
    else:
        tile = tl.load(pointers)
    return tile
