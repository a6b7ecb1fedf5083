"""Dense products of few rows, which cost what it takes to read the weights once.

Outputs are cut into groups, one program each; the rows of x come from the cache. AHEAD > 0: the
launch may begin before the kernel in front of it ends (programmatic dependent launch, sm_90), and
asks for so many entries of each output's weights before it waits for that kernel.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.ahead_kernel import ask_for
from jackfield.plugins.kernels.triton.early_kernel import let_next_begin, wait_alone


@triton.jit
def _begin(weights, first, width, AHEAD: tl.constexpr):
    """weights `[OUTPUTS]`: where those of each output begin. Nothing that another kernel writes
    may be read, and nothing written, before this."""
    if AHEAD > 0:
        let_next_begin(True)
        ask_for(weights, first, width, AHEAD)
        wait_alone(True)


@triton.jit
def _finish(sums, bias, out, row, output, rows, outputs, BIASED: tl.constexpr):
    """Adds the bias and stores; sums, row and output can be broadcast to each other."""
    if BIASED:
        sums += tl.load(bias + output, output < outputs, other=0.0).to(tl.float32)
    where = row.to(tl.int64) * outputs + output
    tl.store(out + where, sums.to(out.dtype.element_ty), (row < rows) & (output < outputs))


@triton.jit(do_not_specialize=["rows"])
def vector_kernel(
    x,
    weight,
    bias,
    out,
    rows,
    outputs,
    x_stride,
    WIDTH: tl.constexpr,
    BIASED: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """One to four rows without tensor cores: weights go from memory straight to registers.

    BLOCK: entries that all threads of a program load in one go. Rows and weights are then laid out
    alike, and neither passes through shared memory.
    """
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    # What lies past the end is computed from the last one, and never stored.
    weights = weight + tl.minimum(output, outputs - 1).to(tl.int64) * WIDTH
    _begin(weights, 0, WIDTH, AHEAD)
    row = tl.arange(0, ROWS)
    x_rows = x + tl.minimum(row, rows - 1).to(tl.int64) * x_stride
    sums = tl.zeros([ROWS, OUTPUTS, BLOCK], tl.float32)
    for start in tl.range(0, WIDTH, BLOCK, loop_unroll_factor=UNROLL):
        entry = start + tl.arange(0, BLOCK)[None, None, :]
        at_weight = weights[None, :, None] + entry
        at_x = x_rows[:, None, None] + entry
        if WIDTH % BLOCK == 0:
            values = tl.load(at_weight, eviction_policy="evict_first").to(tl.float32)
            sums += values * tl.load(at_x).to(tl.float32)
        else:
            inside = entry < WIDTH
            values = tl.load(at_weight, inside, other=0.0, eviction_policy="evict_first")
            sums += values.to(tl.float32) * tl.load(at_x, inside, other=0.0).to(tl.float32)
    total = tl.sum(sums, 2)
    _finish(total, bias, out, row[:, None], output[None, :], rows, outputs, BIASED)


@triton.jit
def tile_sums(
    x_rows,
    weights,
    begin,
    end,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    STAGES: tl.constexpr,
):
    """`[OUTPUTS, ROWS]`: the weights are the left side, so that few rows are a narrow right one."""
    sums = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for start in tl.range(begin, end, BLOCK, num_stages=STAGES):
        entry = start + tl.arange(0, BLOCK)[None, :]
        if EVEN:
            left = tl.load(weights[:, None] + entry)
            right = tl.load(x_rows[:, None] + entry)
        else:
            left = tl.load(weights[:, None] + entry, entry < end, other=0.0)
            right = tl.load(x_rows[:, None] + entry, entry < end, other=0.0)
        if EXACT:
            left, right = left.to(tl.float32), right.to(tl.float32)
        sums = tl.dot(left, tl.trans(right), sums, input_precision="ieee")
    return sums


@triton.jit
def _sums_in_parts(
    x_rows,
    weights,
    begin,
    end,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    STAGES: tl.constexpr,
):
    """As `_sums`, but each warp takes a BLOCK of its own, so that all have work if outputs are few.
    Added up in a fixed order at the end."""
    sums = tl.zeros([PARTS, OUTPUTS, ROWS], tl.float32)
    part = tl.arange(0, PARTS)[:, None, None] * BLOCK
    for start in tl.range(begin, end, PARTS * BLOCK, num_stages=STAGES):
        entry = start + part + tl.arange(0, BLOCK)[None, None, :]
        if EVEN:
            left = tl.load(weights[None, :, None] + entry)
            right = tl.load(x_rows[None, :, None] + entry)
        else:
            left = tl.load(weights[None, :, None] + entry, entry < end, other=0.0)
            right = tl.load(x_rows[None, :, None] + entry, entry < end, other=0.0)
        if EXACT:
            left, right = left.to(tl.float32), right.to(tl.float32)
        sums = tl.dot(left, tl.permute(right, (0, 2, 1)), sums, input_precision="ieee")
    return tl.sum(sums, 0)


@triton.jit(do_not_specialize=["rows"])
def tile_kernel(
    x,
    weight,
    bias,
    out,
    partials,
    counters,
    rows,
    outputs,
    x_stride,
    width,
    BIASED: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Up to ROWS rows on tensor cores.

    SPLITS programs share the inputs of each group of outputs; whoever is last adds up what all
    have left in `partials`, always in the same order, and sets the group's counter back to 0.
    EVEN: all blocks are whole. EXACT: products of float32.
    """
    group, split = tl.program_id(0), tl.program_id(1)
    output = group * OUTPUTS + tl.arange(0, OUTPUTS)
    # What lies past the end is computed from the last one, and never stored.
    weights = weight + tl.minimum(output, outputs - 1).to(tl.int64) * width
    share = tl.cdiv(tl.cdiv(width, PARTS * BLOCK), SPLITS) * (PARTS * BLOCK)
    begin = split * share
    end = tl.minimum(begin + share, width)
    _begin(weights, begin, width, AHEAD)
    row = tl.arange(0, ROWS)
    x_rows = x + tl.minimum(row, rows - 1).to(tl.int64) * x_stride
    if PARTS == 1:
        sums = tile_sums(x_rows, weights, begin, end, ROWS, OUTPUTS, BLOCK, EVEN, EXACT, STAGES)
    else:
        sums = _sums_in_parts(
            x_rows, weights, begin, end, ROWS, OUTPUTS, BLOCK, PARTS, EVEN, EXACT, STAGES
        )
    row, output = row[None, :], output[:, None]
    if SPLITS == 1:
        _finish(sums, bias, out, row, output, rows, outputs, BIASED)
    else:
        groups = tl.num_programs(0)
        place = tl.arange(0, OUTPUTS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
        at = partials + group.to(tl.int64) * (OUTPUTS * ROWS) + place
        step = groups.to(tl.int64) * (OUTPUTS * ROWS)
        tl.store(at + split * step, sums)
        # All threads' results must be out before this program says so.
        tl.debug_barrier()
        done = tl.atomic_add(counters + group, 1, sem="acq_rel", scope="gpu")
        if done == SPLITS - 1:
            tl.store(counters + group, 0)
            total = tl.zeros([OUTPUTS, ROWS], tl.float32)
            for part in tl.static_range(SPLITS):
                # Other programs have written these, maybe since this one began.
                total += tl.load(at + part * step, cache_modifier=".cg")
            _finish(total, bias, out, row, output, rows, outputs, BIASED)
