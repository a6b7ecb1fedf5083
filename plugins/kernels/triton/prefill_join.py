"""Joins the parts of tiles whose keys were divided among programs."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.prefill_kernel import FIELDS


@triton.jit
def join_kernel(
    parts,
    parts_lse,
    out,
    joins,
    out_stride_token,
    out_stride_head,
    LANES: tl.constexpr,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """One program: one row of a tile and lane, as `prefill_kernel` lays them out.

    joins: `Join`s. parts `[piece, lane, M, H]` and parts_lse (base 2): what the pieces left.
    """
    lane = tl.program_id(0) % LANES
    join = joins + (tl.program_id(0) // LANES) * FIELDS
    row = tl.program_id(1)
    PACKS: tl.constexpr = (GROUP + PACK - 1) // PACK
    head = (lane % PACKS) * PACK + row % PACK
    token = tl.load(join).to(tl.int64)
    tokens = tl.load(join + 1)
    first = tl.load(join + 2).to(tl.int64)
    count = tl.load(join + 3)
    if (row // PACK < tokens) & (head < GROUP):
        column_H = tl.arange(0, BLOCK_H)
        top = float("-inf")
        total = 0.0
        acc_H = tl.zeros([BLOCK_H], tl.float32)
        for part in range(count):
            where = ((first + part) * LANES + lane) * BLOCK_M + row
            lse = tl.load(parts_lse + where)
            part_H = tl.load(parts + where * BLOCK_H + column_H)
            new = tl.maximum(top, lse)
            base = tl.where(new == float("-inf"), 0.0, new)
            weight = tl.exp2(lse - base)
            shrink = tl.exp2(top - base)
            acc_H = acc_H * shrink + part_H * weight
            total = total * shrink + weight
            top = new
        head += lane // PACKS * GROUP
        out += (token + row // PACK) * out_stride_token + head * out_stride_head
        joined_H = (acc_H / total).to(out.dtype.element_ty)
        tl.store(out + column_H, joined_H, mask=column_H < HEAD_DIM)
