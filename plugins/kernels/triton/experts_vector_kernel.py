"""Products of so few tokens that hardly two of them have an expert in common.

Nothing is sorted: each program reads some outputs of one expert, or of a token's experts, for one
token, and weights go from memory straight to registers.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.ahead_kernel import ask_for
from jackfield.plugins.kernels.triton.early_kernel import let_next_begin, wait_alone


@triton.jit
def gate_up_vector_kernel(
    x,
    ids,
    gate_up,
    hidden,
    counts,
    x_stride,
    TOP: tl.constexpr,
    EXPERTS: tl.constexpr,
    INPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
    COUNTED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """`silu(gate) * up` of OUTPUTS of one assignment's expert, to `[assignments, WIDTH]`.

    TOP: experts of a token. BLOCK: entries that all threads of a program load in one go.
    """
    group, assignment = tl.program_id(0), tl.program_id(1)
    wait_alone(EARLY)
    # Only now, so that what this one may read is there for the next launch, too.
    let_next_begin(EARLY)
    expert = tl.load(ids + assignment)
    if (expert < 0) | (expert >= EXPERTS):
        return
    if COUNTED:
        tl.atomic_add(counts + expert, 1, group == 0, sem="relaxed")
    output = group * OUTPUTS + tl.arange(0, OUTPUTS)
    # What lies past the end is computed from the last one, and never stored.
    gates = gate_up + (2 * expert * WIDTH + tl.minimum(output, WIDTH - 1)) * INPUTS
    row = x + (assignment // TOP).to(tl.int64) * x_stride
    gate = tl.zeros([OUTPUTS, BLOCK], tl.float32)
    up = tl.zeros([OUTPUTS, BLOCK], tl.float32)
    for start in tl.range(0, INPUTS, BLOCK, loop_unroll_factor=UNROLL):
        entry = start + tl.arange(0, BLOCK)[None, :]
        inside = entry < INPUTS
        at = gates[:, None] + entry
        if INPUTS % BLOCK == 0:
            left = tl.load(at, eviction_policy="evict_first").to(tl.float32)
            right = tl.load(at + WIDTH * INPUTS, eviction_policy="evict_first").to(tl.float32)
            values = tl.load(row + entry).to(tl.float32)
        else:
            left = tl.load(at, inside, other=0.0).to(tl.float32)
            right = tl.load(at + WIDTH * INPUTS, inside, other=0.0).to(tl.float32)
            values = tl.load(row + entry, inside, other=0.0).to(tl.float32)
        gate += left * values
        up += right * values
    gate_sum, up_sum = tl.sum(gate, 1), tl.sum(up, 1)
    gated = gate_sum * tl.sigmoid(gate_sum) * up_sum
    at_hidden = hidden + assignment.to(tl.int64) * WIDTH + output
    tl.store(at_hidden, gated.to(hidden.dtype.element_ty), output < WIDTH)


@triton.jit
def down_vector_kernel(
    hidden,
    ids,
    shares,
    down,
    out,
    TOP: tl.constexpr,
    EXPERTS: tl.constexpr,
    PADDED: tl.constexpr,
    WIDTH: tl.constexpr,
    HIDDEN: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
    AHEAD: tl.constexpr,
    EARLY: tl.constexpr,
):
    """OUTPUTS of a token, of all its experts side by side, to `[tokens, HIDDEN]`.

    shares: by which each expert's product is multiplied. PADDED: a power of two that is not less
    than TOP. BLOCK: entries of each expert that a program loads in one go. AHEAD: entries that are
    asked for before the kernel in front ends.
    """
    group, token = tl.program_id(0), tl.program_id(1)
    place = tl.arange(0, PADDED)
    assignment = token * TOP + place
    # Ids are there since the kernel in front began to compute.
    expert = tl.load(ids + assignment, place < TOP, other=-1, cache_modifier=".cg")
    real = (expert >= 0) & (expert < EXPERTS)
    expert = tl.where(real, expert, 0)
    output = group * OUTPUTS + tl.arange(0, OUTPUTS)
    # What lies past the end is computed from the last one, and never stored.
    index = expert[:, None] * HIDDEN + tl.minimum(output, HIDDEN - 1)[None, :]
    weights = down + index * WIDTH
    if AHEAD > 0:
        ask_for(tl.reshape(weights, (PADDED * OUTPUTS,)), 0, WIDTH, AHEAD)
    wait_alone(EARLY)
    let_next_begin(EARLY)
    share = tl.load(shares + assignment, real, other=0.0)
    rows = hidden + assignment.to(tl.int64) * WIDTH
    sums = tl.zeros([PADDED, OUTPUTS, BLOCK], tl.float32)
    for start in tl.range(0, WIDTH, BLOCK, loop_unroll_factor=UNROLL):
        entry = start + tl.arange(0, BLOCK)[None, None, :]
        inside = real[:, None, None]
        if WIDTH % BLOCK != 0:
            inside &= entry < WIDTH
        left = tl.load(weights[:, :, None] + entry, inside, other=0.0)
        right = tl.load(rows[:, None, None] + entry, inside, other=0.0)
        sums += left.to(tl.float32) * right.to(tl.float32)
    products = tl.sum(sums, 2) * share[:, None]
    total = tl.sum(tl.where(real[:, None], products, 0.0), 0)
    at = out + token.to(tl.int64) * HIDDEN + output
    tl.store(at, total.to(out.dtype.element_ty), output < HIDDEN)
