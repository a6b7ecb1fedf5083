"""The weighted sum of what a token's experts made of it."""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.early_kernel import wait_for_previous


@triton.jit
def sum_kernel(
    made,
    place,
    shares,
    out,
    WIDTH: tl.constexpr,
    TOP: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """In the order in which the token names its experts, in float32. place: the row of `made` of
    each of them, -1 = nobody's."""
    token = tl.program_id(0)
    entry = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    wait_for_previous(EARLY)
    total = tl.zeros([BLOCK], tl.float32)
    for index in tl.static_range(TOP):
        at = tl.load(place + token * TOP + index).to(tl.int64)
        share = tl.load(shares + token * TOP + index)
        row = tl.load(made + at * WIDTH + entry, (entry < WIDTH) & (at >= 0), other=0.0)
        total += tl.where(at >= 0, share * row.to(tl.float32), 0.0)
    at_out = out + token.to(tl.int64) * WIDTH + entry
    tl.store(at_out, total.to(out.dtype.element_ty), entry < WIDTH)
