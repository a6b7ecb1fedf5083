"""Products of few rows with weights of few bits, which cost what it takes to read those once.

Weights go from memory straight to the registers that feed tensor cores: what a thread loads at
once is what it needs of a product (see `quant_pack`), so the loop has neither shared memory nor
barriers. Axes are named by their bits: an output of a tile is 8 * h + g; of the 32 inputs of a
product, one is 8 * t + 4 * p + 2 * q + c; a thread has one g and t, and all of h, p, q and c.

Each warp has some tiles of 16 outputs, and every n-th block of inputs; warps that share outputs add
up what they have at the end. Codes are exact, and so is what is left of them without their zero
point; products are summed in float32, and scales come in once per group, in float32.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.ahead_kernel import fetch
from jackfield.plugins.kernels.triton.early_kernel import let_next_begin
from jackfield.plugins.kernels.triton.quant_values_kernel import add_exactly, unpack

SIDE: tl.constexpr = tl.constexpr(16)
"""Outputs of a tile."""
LINE: tl.constexpr = tl.constexpr(64)
"""Words that the cache fetches at once."""
BLOCK: tl.constexpr = tl.constexpr(512)
"""Words of a tile that lie side by side: those of a block of inputs."""
AT_ONCE: tl.constexpr = tl.constexpr(32)
"""Inputs of a product: those of one value of all words of a block."""


@triton.jit
def ask_early(words, program, begin, outputs, blocks, SIDES: tl.constexpr, AHEAD: tl.constexpr):
    """Has the cache fetch AHEAD lines of each of a program's tiles, from a block of inputs on."""
    side = tl.minimum(program * SIDES + tl.arange(0, SIDES), tl.cdiv(outputs, SIDE) - 1)
    line = begin * (BLOCK // LINE) + tl.arange(0, AHEAD)
    line = tl.minimum(line, blocks * (BLOCK // LINE) - 1)
    address = words + side.to(tl.int64)[:, None] * blocks * BLOCK + line[None, :] * LINE
    fetch(address.to(tl.int64))


@triton.jit
def _wait_once(start, begin, EARLY: tl.constexpr):
    """For the kernel in front. That it is a branch keeps the compiler from moving what was loaded
    before it to where it is needed."""
    if start == begin:
        if EARLY:
            tl.extra.cuda.gdc_wait()
        else:
            tl.debug_barrier()


@triton.jit
def _load_words(
    w_at, start, end, first,
    STEP: tl.constexpr, BLOCKS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """A tuple of `[32, warps, tiles, 2, 8]`: of one block each."""
    within = tl.arange(0, 2)[:, None] * (BLOCK // 2) + tl.arange(0, 8)[None, :]
    found = ()
    for block in tl.static_range(BLOCKS):
        there = (start + block * STEP + first < end)[None, :, None, None, None]
        at = (w_at + (start + block * STEP) // INPUTS * BLOCK)[:, :, :, None, None]
        at = at + within[None, None, None, :, :]
        loaded = tl.load(at, there, other=0, eviction_policy="evict_first")
        found += (loaded,)  # type: ignore[assignment]
    return found


@triton.jit
def _load_table(table, group, side, outputs, SHARING: tl.constexpr, TILES: tl.constexpr):
    """`[warps, outputs]`; past the end anything. Tiles are loaded one by one, so that each load is
    small enough to be done as the sums lie, by all threads that want an entry."""
    step = tl.cdiv(outputs, SHARING)
    row = tl.arange(0, SIDE)[None, :]
    output = side[:, None] * SIDE + row
    if SHARING == 1:
        at = (table + (group * step + side * SIDE))[:, None] + row
        other_at = at + SIDE
    else:
        at = table + (group[:, None] * step + output // SHARING)
        other_at = table + (group[:, None] * step + (output + SIDE) // SHARING)
    found = tl.load(at, output < outputs)
    if TILES == 2:
        found = tl.join(found, tl.load(other_at, output + SIDE < outputs))
        found = tl.reshape(tl.permute(found, (0, 2, 1)), [side.shape[0], 2 * SIDE])
    return found


@triton.jit
def _load_tables(
    table, start, end, first, side, outputs,
    STEP: tl.constexpr, BLOCKS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr,
    SECTION: tl.constexpr, SHARING: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """A tuple: for all sections of all blocks. What is past the end has those of the last group."""
    if GROUP == 0:
        all_inputs = _load_table(table, first * 0, side, outputs, SHARING, TILES)
    found = ()
    for block in tl.static_range(BLOCKS):
        for section in tl.static_range(INPUTS // SECTION):
            if GROUP == 0:
                found += (all_inputs,)  # type: ignore[assignment]
            else:
                entry = start + block * STEP + section * SECTION + first
                group = tl.minimum(entry, end - 1) // GROUP
                entries = _load_table(table, group, side, outputs, SHARING, TILES)
                found += (entries,)  # type: ignore[assignment]
    return found


@triton.jit
def _left(values, WARPS: tl.constexpr, TILES: tl.constexpr):
    """From `[32, warps, tiles, 2, 8]` to `[warps, outputs, inputs]`."""
    parts = tl.reshape(values, [8, 4, WARPS, TILES, 2, 2, 2, 2])  # g t warp tile p q h c
    parts = tl.permute(parts, (2, 3, 6, 0, 4, 5, 1, 7))
    return tl.reshape(parts, [WARPS, TILES * SIDE, AT_ONCE])


@triton.jit
def _right(x, WARPS: tl.constexpr, ROWS: tl.constexpr):
    """From `[8, warps, rows / 8, inputs]` to `[warps, inputs, rows]`."""
    parts = tl.reshape(x, [8, WARPS, ROWS // 8, 4, 2, 2, 2])  # row warp eight t p q c
    parts = tl.permute(parts, (1, 4, 5, 3, 6, 2, 0))
    return tl.reshape(parts, [WARPS, AT_ONCE, ROWS])


@triton.jit
def _taken(zero, OF: tl.constexpr, ZEROS: tl.constexpr, MIDDLE: tl.constexpr, BASE: tl.constexpr):
    """What has to be added to what `unpack` gives, exactly, in the type OF."""
    taken = BASE - zero.to(tl.float32) if ZEROS else tl.full(zero.shape, BASE - MIDDLE, tl.float32)
    return taken.to(OF)[:, :, None]


@triton.jit
def _multiply(
    part, values, taken, x_at, start, first, inside, width,
    FROM: tl.constexpr, TO: tl.constexpr, SHIFTED: tl.constexpr, EVEN: tl.constexpr,
    EXACT: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Adds the products of some values of all words of a block."""
    for place in tl.static_range(FROM, TO):
        entry = place * AT_ONCE + tl.arange(0, AT_ONCE)
        at = (x_at + start)[:, :, :, None] + entry[None, None, None, :]
        mask = inside
        if not EVEN:
            there = start + first[:, None] + entry[None, :] < width
            mask = inside & there[None, :, None, :]
        x = tl.load(at, mask, other=0.0)
        left = _left(values[place], values[place].shape[1], values[place].shape[2])
        if SHIFTED:
            left = add_exactly(left, taken, ASSEMBLY)
        if EXACT:
            x, left = x.to(tl.float32), left.to(tl.float32)
        part = tl.dot(left, _right(x, x.shape[1], 8 * x.shape[2]), part, input_precision="ieee")
    return part


@triton.jit
def _added(sums, part, scale, GROUP: tl.constexpr):
    """What a group's products are worth; without groups they went on from the sums."""
    if GROUP > 0:
        part = sums + part * scale.to(tl.float32)[:, :, None]
    return part


@triton.jit
def _finish(sums, bias, out, row, output, rows, outputs, BIASED: tl.constexpr):
    """Adds the bias and stores; row and output can be broadcast to sums."""
    if BIASED:
        sums += tl.load(bias + output, output < outputs, other=0.0).to(tl.float32)
    where = row.to(tl.int64) * outputs + output
    tl.store(out + where, sums.to(out.dtype.element_ty), (row < rows) & (output < outputs))


@triton.jit
def _load_both(
    scales, zeros, start, end, first, side, outputs,
    STEP: tl.constexpr, BLOCKS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr,
    SECTION: tl.constexpr, SHARING: tl.constexpr, TILES: tl.constexpr, ZEROS: tl.constexpr,
):  # fmt: skip
    """Scales and zero points; if there are none, the scales again."""
    scale = _load_tables(
        scales, start, end, first, side, outputs,
        STEP, BLOCKS, INPUTS, GROUP, SECTION, SHARING, TILES,
    )  # fmt: skip
    zero = scale
    if ZEROS:
        zero = _load_tables(
            zeros, start, end, first, side, outputs,
            STEP, BLOCKS, INPUTS, GROUP, SECTION, SHARING, TILES,
        )  # fmt: skip
    return scale, zero


@triton.jit
def _hand_in(
    total, bias, out, partials, counters, program, split, splits, first_row, rows, outputs,
    OUTPUTS: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Stores a program's sums; where several share them, whoever is last adds all up."""
    AT_A_TIME: tl.constexpr = 8 if ROWS <= 16 else 2
    row, output = tl.arange(0, ROWS)[None, :], tl.arange(0, OUTPUTS)[:, None]
    where = output * ROWS + row
    row, output = first_row + row, program * OUTPUTS + output
    if not SPLIT:
        _finish(total, bias, out, row, output, rows, outputs, BIASED)
    else:
        shared = program * tl.num_programs(0) + tl.program_id(0)
        step = (tl.num_programs(0) * tl.num_programs(1)).to(tl.int64) * (OUTPUTS * ROWS)
        at = partials + shared.to(tl.int64) * (OUTPUTS * ROWS) + where
        tl.store(at + split * step, total, row < rows)
        # All threads' results must be out before this program says so.
        tl.debug_barrier()
        done = tl.atomic_add(counters + shared, 1, sem="acq_rel", scope="gpu")
        if done == splits - 1:
            tl.store(counters + shared, 0)
            total = tl.zeros([OUTPUTS, ROWS], tl.float32)
            for part in tl.range(0, splits, loop_unroll_factor=AT_A_TIME):
                # Other programs have written these, maybe since this one began.
                total += tl.load(at + part * step, row < rows, other=0.0, cache_modifier=".cg")
            _finish(total, bias, out, row, output, rows, outputs, BIASED)


@triton.jit(do_not_specialize=["rows"])
def quant_tile_kernel(
    x,
    words,
    scales,
    zeros,
    bias,
    out,
    partials,
    counters,
    rows,
    outputs,
    x_stride,
    width,
    blocks,
    KIND: tl.constexpr,
    BASE: tl.constexpr,
    MIDDLE: tl.constexpr,
    GROUP: tl.constexpr,
    SECTION: tl.constexpr,
    SHARING: tl.constexpr,
    ZEROS: tl.constexpr,
    BIASED: tl.constexpr,
    EVEN: tl.constexpr,
    EXACT: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    ABREAST: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    SPLIT: tl.constexpr,
    AHEAD: tl.constexpr,
    EARLY: tl.constexpr,
):
    """ROWS rows a program, those of the same outputs side by side. Reads weights, scales and zero
    points before it waits for the kernel in front, which must not be the one that wrote them.

    TILES: of 16 outputs, of a warp: 1 or 2. ABREAST: warps with outputs of their own. PARTS: warps
    that share outputs. BLOCKS: of inputs, of each tile, that a warp loads at once while it works on
    as many. GROUP: inputs that share a scale; 0 = all. SECTION: inputs of a block that do, a
    multiple of 32. SHARING: outputs that share a scale. MIDDLE: the zero point if there are no
    ZEROS. SPLIT: several programs share the inputs of each group of outputs; whoever is last adds
    up what all have left in `partials`, always in the same order, and sets the group's counter back
    to 0. EVEN: all blocks are whole. EXACT: products of float32.
    """
    VALUES: tl.constexpr = 4 if KIND == 4 else 2
    INPUTS: tl.constexpr = VALUES * AT_ONCE
    OUTPUTS: tl.constexpr = SIDE * TILES * ABREAST
    STEP: tl.constexpr = PARTS * INPUTS
    SECTIONS: tl.constexpr = INPUTS // SECTION
    SHIFTED: tl.constexpr = ZEROS or MIDDLE != BASE
    OF: tl.constexpr = x.dtype.element_ty
    program, split = tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(2)
    first_row = tl.program_id(0) * ROWS
    share = tl.cdiv(tl.cdiv(width, STEP * BLOCKS), splits) * (STEP * BLOCKS)
    begin = split * share
    end = tl.minimum(begin + share, width)
    let_next_begin(EARLY)
    if AHEAD > 0:
        ask_early(words, program, begin // INPUTS, outputs, blocks, TILES * ABREAST, AHEAD)
    warp = tl.arange(0, PARTS * ABREAST)
    first = warp // ABREAST * INPUTS
    side = (program * ABREAST + warp % ABREAST) * TILES
    known = tl.minimum(side[:, None] + tl.arange(0, TILES)[None, :], tl.cdiv(outputs, SIDE) - 1)
    w_at = words + (known.to(tl.int64) * blocks + (warp // ABREAST)[:, None])[None, :, :] * BLOCK
    w_at += (tl.arange(0, 32) * 8)[:, None, None]
    row = first_row + tl.arange(0, ROWS // 8)[None, :] * 8 + tl.arange(0, 8)[:, None]
    x_at = x + (row.to(tl.int64) * x_stride)[:, None, :] + first[None, :, None]
    inside = (row < rows)[:, None, :, None]
    nothing = tl.zeros([PARTS * ABREAST, TILES * SIDE, ROWS], tl.float32)
    sums = nothing
    packed = _load_words(w_at, begin, end, first, STEP, BLOCKS, INPUTS)
    scale, zero = _load_both(
        scales, zeros, begin, end, first, side, outputs,
        STEP, BLOCKS, INPUTS, GROUP, SECTION, SHARING, TILES, ZEROS,
    )  # fmt: skip
    for start in tl.range(begin, end, STEP * BLOCKS, num_stages=1):
        following = start + STEP * BLOCKS
        next_packed = _load_words(w_at, following, end, first, STEP, BLOCKS, INPUTS)
        next_scale, next_zero = scale, zero
        if GROUP > 0:
            next_scale, next_zero = _load_both(
                scales, zeros, following, end, first, side, outputs,
                STEP, BLOCKS, INPUTS, GROUP, SECTION, SHARING, TILES, ZEROS,
            )  # fmt: skip
        _wait_once(start, begin, EARLY)
        for block in tl.static_range(BLOCKS):
            values = unpack(packed[block], OF, KIND, BASE, ASSEMBLY)
            for section in tl.static_range(SECTIONS):
                taken = _taken(zero[block * SECTIONS + section], OF, ZEROS, MIDDLE, BASE)
                part = _multiply(
                    sums if GROUP == 0 else nothing, values, taken, x_at, start + block * STEP,
                    first, inside, width, section * VALUES // SECTIONS,
                    (section + 1) * VALUES // SECTIONS, SHIFTED, EVEN, EXACT, ASSEMBLY,
                )  # fmt: skip
                sums = _added(sums, part, scale[block * SECTIONS + section], GROUP)
        packed, scale, zero = next_packed, next_scale, next_zero
    if GROUP == 0:
        sums *= scale[0].to(tl.float32)[:, :, None]
    total = tl.sum(tl.reshape(sums, [PARTS, OUTPUTS, ROWS]), 0)
    _hand_in(
        total, bias, out, partials, counters, program, split, splits, first_row, rows, outputs,
        OUTPUTS, ROWS, SPLIT, BIASED,
    )  # fmt: skip
