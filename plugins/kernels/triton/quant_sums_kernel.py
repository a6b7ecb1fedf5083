"""The loop of products with weights of few bits, which cost what it takes to read those once.

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

from jackfield.plugins.kernels.triton.quant_values_kernel import add_exactly, unpack

SIDE: tl.constexpr = tl.constexpr(16)
"""Outputs of a tile."""
BLOCK: tl.constexpr = tl.constexpr(512)
"""Words of a tile that lie side by side: those of a block of inputs."""
AT_ONCE: tl.constexpr = tl.constexpr(32)
"""Inputs of a product: those of one value of all words of a block."""


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
        there = (first + (start + block * STEP) < end)[None, :, None, None, None]
        at = (w_at + (start + block * STEP) // INPUTS * BLOCK)[:, :, :, None, None]
        at = at + within[None, None, None, :, :]
        loaded = tl.load(at, there, other=0, eviction_policy="evict_first")
        found += (loaded,)  # type: ignore[assignment]
    return found


@triton.jit
def _load_table(table, group, side, apart, outputs, SHARING: tl.constexpr, TILES: tl.constexpr):
    """`[warps, outputs]`; past the end anything. Tiles are loaded one by one, so that each load is
    small enough to be done as the sums lie, by all threads that want an entry."""
    step = tl.cdiv(outputs, SHARING)
    row = tl.arange(0, SIDE)[None, :]
    output = side[:, None] * SIDE + row
    if SHARING == 1:
        at = (table + (group * step + side * SIDE))[:, None] + row
        other_at = at + apart * SIDE
    else:
        at = table + (group[:, None] * step + output // SHARING)
        other_at = table + (group[:, None] * step + (output + apart * SIDE) // SHARING)
    found = tl.load(at, output < outputs)
    if TILES == 2:
        found = tl.join(found, tl.load(other_at, output + apart * SIDE < outputs))
        found = tl.reshape(tl.permute(found, (0, 2, 1)), [side.shape[0], 2 * SIDE])
    return found


@triton.jit
def _load_tables(
    table, start, end, first, side, apart, outputs,
    STEP: tl.constexpr, BLOCKS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr,
    SECTION: tl.constexpr, SHARING: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """A tuple: for all sections of all blocks. What is past the end has those of the last group."""
    if GROUP == 0:
        all_inputs = _load_table(table, first * 0, side, apart, outputs, SHARING, TILES)
    found = ()
    for block in tl.static_range(BLOCKS):
        for section in tl.static_range(INPUTS // SECTION):
            if GROUP == 0:
                found += (all_inputs,)  # type: ignore[assignment]
            else:
                entry = first + (start + block * STEP + section * SECTION)
                group = tl.minimum(entry, end - 1) // GROUP
                entries = _load_table(table, group, side, apart, outputs, SHARING, TILES)
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
def _load_both(
    scales, zeros, start, end, first, side, apart, outputs,
    STEP: tl.constexpr, BLOCKS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr,
    SECTION: tl.constexpr, SHARING: tl.constexpr, TILES: tl.constexpr, ZEROS: tl.constexpr,
):  # fmt: skip
    """Scales and zero points; if there are none, the scales again."""
    scale = _load_tables(
        scales, start, end, first, side, apart, outputs,
        STEP, BLOCKS, INPUTS, GROUP, SECTION, SHARING, TILES,
    )  # fmt: skip
    zero = scale
    if ZEROS:
        zero = _load_tables(
            zeros, start, end, first, side, apart, outputs,
            STEP, BLOCKS, INPUTS, GROUP, SECTION, SHARING, TILES,
        )  # fmt: skip
    return scale, zero


@triton.jit
def quant_sums(
    x_rows, inside, words, scales, zeros, begin, end, side, apart, outputs, width, blocks,
    KIND: tl.constexpr, BASE: tl.constexpr, MIDDLE: tl.constexpr, GROUP: tl.constexpr,
    SECTION: tl.constexpr, SHARING: tl.constexpr, ZEROS: tl.constexpr, EVEN: tl.constexpr,
    EXACT: tl.constexpr, ASSEMBLY: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr,
    ABREAST: tl.constexpr, PARTS: tl.constexpr, BLOCKS: tl.constexpr, WAIT: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """`[warps, outputs of a warp, ROWS]`: what each warp sums up of inputs from `begin` to `end`.

    x_rows, inside: `[8, ROWS / 8]`: where the inputs of row 8 * e + r, at [r, e], begin, and if
    there are any. side: `[warps]`: the first tile of each warp; the second one, if there is one,
    is `apart` behind it. outputs: of the whole weight, whose tiles all lie side by side. WAIT:
    for the kernel in front, once weights, scales and zero points are on their way. The rest is as
    for `quant_tile_kernel`.
    """
    VALUES: tl.constexpr = 4 if KIND == 4 else 2
    INPUTS: tl.constexpr = VALUES * AT_ONCE
    STEP: tl.constexpr = PARTS * INPUTS
    SECTIONS: tl.constexpr = INPUTS // SECTION
    SHIFTED: tl.constexpr = ZEROS or MIDDLE != BASE
    OF: tl.constexpr = x_rows.dtype.element_ty
    warp = tl.arange(0, PARTS * ABREAST)
    first = warp // ABREAST * INPUTS
    tiles = side[:, None] + tl.arange(0, TILES)[None, :] * apart
    known = tl.minimum(tiles, tl.cdiv(outputs, SIDE) - 1)
    w_at = words + (known.to(tl.int64) * blocks + (warp // ABREAST)[:, None])[None, :, :] * BLOCK
    w_at += (tl.arange(0, 32) * 8)[:, None, None]
    x_at = x_rows[:, None, :] + first[None, :, None]
    inside = inside[:, None, :, None]
    nothing = tl.zeros([PARTS * ABREAST, TILES * SIDE, ROWS], tl.float32)
    sums = nothing
    packed = _load_words(w_at, begin, end, first, STEP, BLOCKS, INPUTS)
    scale, zero = _load_both(
        scales, zeros, begin, end, first, side, apart, outputs,
        STEP, BLOCKS, INPUTS, GROUP, SECTION, SHARING, TILES, ZEROS,
    )  # fmt: skip
    for start in tl.range(begin, end, STEP * BLOCKS, num_stages=1):
        following = start + STEP * BLOCKS
        next_packed = _load_words(w_at, following, end, first, STEP, BLOCKS, INPUTS)
        next_scale, next_zero = scale, zero
        if GROUP > 0:
            next_scale, next_zero = _load_both(
                scales, zeros, following, end, first, side, apart, outputs,
                STEP, BLOCKS, INPUTS, GROUP, SECTION, SHARING, TILES, ZEROS,
            )  # fmt: skip
        if WAIT:
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
    return sums
