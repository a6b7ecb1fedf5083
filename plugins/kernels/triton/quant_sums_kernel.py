"""The loop of products with weights of few bits, which cost what it takes to read those once.

Weights go from memory straight to the registers that feed tensor cores: what a thread loads at
once is what it needs of a product (see `quant_pack`), so the loop has neither shared memory nor
barriers. Axes are named by their bits: an output of a tile is 8 * h + g; of the 32 inputs of a
product, one is 8 * t + 4 * p + 2 * q + c; a thread has one g and t, and all of h, p, q and c.

Each warp has some tiles of 16 outputs, and every n-th block of inputs; warps that share outputs add
up what they have at the end. Codes are exact; products are summed in float32, and scales come in
once per group, in float32.

Zero points, and what `unpack` leaves in the codes, are taken off whichever way is cheaper. Either
now: of the codes, which is exact. Or later: of the sums of a group, the sum of its x times what all
its codes have too much. Tensor cores make that sum of ones in place of codes; tiles share it. What
is taken off may be ten times the products proper, and so is the rounding error of a group's sums:
of float32, which still is far less than that of a bfloat16, even where all x are alike and what is
left all but cancels. Sums of all inputs grow too large for that, and have it done now.
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
def _paired(words, PAIRS: tl.constexpr):
    """To be kept from round to round: if PAIRS, two words in every other entry, in a register of 32
    bits. Those of 16 bits are copied, and put together again."""
    if PAIRS:
        words = tl.inline_asm_elementwise(
            "mov.b32 $0, $2; mov.b32 $1, 0;", "=r,=r,r", [words], dtype=tl.int32, is_pure=True,
            pack=2,
        )  # fmt: skip
    return words


@triton.jit
def _unpaired(pairs, PAIRS: tl.constexpr):
    """The words again."""
    if PAIRS:
        pairs = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r,r", [pairs], dtype=tl.int16, is_pure=True, pack=2
        )
    return pairs


@triton.jit
def _words_at(words, block, part, side, apart, outputs, blocks, TILES: tl.constexpr):
    """`[32, warps, tiles]`: where the first words are that each thread has of a tile; those of the
    last tile if there is none. part: `[warps]`: how many blocks behind `block`."""
    tiles = side[:, None] + tl.arange(0, TILES)[None, :] * apart
    known = tl.minimum(tiles, tl.cdiv(outputs, SIDE) - 1)
    place = known.to(tl.int64) * blocks + (part + block)[:, None]
    return words + place[None, :, :] * BLOCK + (tl.arange(0, 32) * 8)[:, None, None]


@triton.jit
def _load_words(
    w_at, first, left,
    STEP: tl.constexpr, BLOCKS: tl.constexpr, INPUTS: tl.constexpr, EVEN: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """A tuple, of one block each: what `_paired` makes of `[32, warps, tiles, 2, 8]`. w_at: where
    the first block's words are; left: inputs from there on, and `first` of each warp."""
    within = tl.arange(0, 2)[:, None] * (BLOCK // 2) + tl.arange(0, 8)[None, :]
    found = ()
    for block in tl.static_range(BLOCKS):
        there = left > 0
        if not EVEN:
            there = (first + block * STEP < left)[None, :, None, None, None]
        at = w_at[:, :, :, None, None] + (block * STEP // INPUTS * BLOCK + within)
        # They are read once, and so not kept in the cache that x is in.
        loaded = tl.load(at, there, other=0, cache_modifier=".cg")
        found += (_paired(loaded, PAIRS),)  # type: ignore[assignment]
    return found


@triton.jit
def _places(table, side, apart, outputs, SHARING: tl.constexpr, TILES: tl.constexpr):
    """For each tile, where the entries of the first group are, and whether there are any."""
    output = side[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    places = ((table + output // SHARING, output < outputs),)
    if TILES == 2:
        output += apart * SIDE
        places += ((table + output // SHARING, output < outputs),)  # type: ignore[assignment]
    return places


@triton.jit
def _load_table(places, offset):
    """`[warps, outputs]`; past the end anything. offset: to the entries of the group. Tiles are
    loaded one by one, so that each load is small enough to be done as the sums lie, by all threads
    that want an entry."""
    found = tl.load(places[0][0] + offset, places[0][1])
    if len(places) == 2:
        found = tl.join(found, tl.load(places[1][0] + offset, places[1][1]))
        found = tl.reshape(tl.permute(found, (0, 2, 1)), [found.shape[0], 2 * SIDE])
    return found


@triton.jit
def _load_tables(
    places, start, end, first, step,
    STEP: tl.constexpr, BLOCKS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr,
    SECTION: tl.constexpr,
):  # fmt: skip
    """A tuple: for all sections of all blocks. What is past the end has those of the last group.
    step: entries of a group."""
    if GROUP == 0:
        all_inputs = _load_table(places, 0)
    found = ()
    for block in tl.static_range(BLOCKS):
        for section in tl.static_range(INPUTS // SECTION):
            if GROUP == 0:
                found += (all_inputs,)  # type: ignore[assignment]
            else:
                entry = first + (start + block * STEP + section * SECTION)
                group = tl.minimum(entry, end - 1).to(tl.uint32) // GROUP
                entries = _load_table(places, (group * step)[:, None])
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
def _taken(zero, ZEROS: tl.constexpr, MIDDLE: tl.constexpr, BASE: tl.constexpr):
    """What has to be added to what `unpack` gives."""
    return BASE - zero.to(tl.float32) if ZEROS else tl.full(zero.shape, BASE - MIDDLE, tl.float32)


@triton.jit
def _summed(total, right, OF: tl.constexpr):
    """Adds the sums of the inputs of all rows."""
    ones = tl.full([right.shape[0], SIDE, AT_ONCE], 1.0, OF)
    return tl.dot(ones, right, total, input_precision="ieee")


@triton.jit
def _multiply(
    part, total, values, taken, x_at, start, first, inside, width,
    FROM: tl.constexpr, TO: tl.constexpr, NOW: tl.constexpr, LATER: tl.constexpr,
    FIRST: tl.constexpr, EVEN: tl.constexpr, EXACT: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Adds the products of some values of all words of a block. NOW: of what they are once `taken`
    is added. LATER: adds to `total` the sums of x; FIRST: before the products."""
    for place in tl.static_range(FROM, TO):
        entry = place * AT_ONCE + tl.arange(0, AT_ONCE)
        at = x_at[:, :, :, None] + entry[None, None, None, :]
        mask = inside
        if not EVEN:
            there = start + first[:, None] + entry[None, :] < width
            mask = inside & there[None, :, None, :]
        x = tl.load(at, mask, other=0.0)
        left = _left(values[place], values[place].shape[1], values[place].shape[2])
        if NOW:
            left = add_exactly(left, taken.to(left.dtype)[:, :, None], ASSEMBLY)
        if EXACT:
            x, left = x.to(tl.float32), left.to(tl.float32)
        right = _right(x, x.shape[1], 8 * x.shape[2])
        if LATER and FIRST:
            total = _summed(total, right, left.dtype)
        part = tl.dot(left, right, part, input_precision="ieee")
        if LATER and not FIRST:
            total = _summed(total, right, left.dtype)
    return part, total


@triton.jit
def _of_all(total, TILES: tl.constexpr):
    """From `[warps, 16, rows]` to `[warps, outputs, rows]`: all outputs have the same."""
    if TILES == 2:
        WARPS: tl.constexpr = total.shape[0]
        ROWS: tl.constexpr = total.shape[2]
        total = tl.broadcast_to(total[:, None, :, :], [WARPS, TILES, SIDE, ROWS])
        total = tl.reshape(total, [WARPS, TILES * SIDE, ROWS])
    return total


@triton.jit
def _add_section(
    sums, values, scale, zero, x_at, start, first, inside, width,
    FROM: tl.constexpr, TO: tl.constexpr, SHIFTED: tl.constexpr, BASE: tl.constexpr,
    MIDDLE: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr, EVEN: tl.constexpr,
    EXACT: tl.constexpr, ASSEMBLY: tl.constexpr, TILES: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The sums with what some values of all words of a block are worth; without groups, what they
    would be for scales of one."""
    WARPS: tl.constexpr = sums.shape[0]
    ROWS: tl.constexpr = sums.shape[2]
    SECTION: tl.constexpr = (TO - FROM) * AT_ONCE
    # Instructions that each way takes; all inputs together are too many to be taken off later.
    NOW: tl.constexpr = SECTION // 4 * TILES
    LATER: tl.constexpr = ROWS // 8 * (SECTION // 16 + 4 * TILES)
    IS_LATER: tl.constexpr = SHIFTED and GROUP > 0 and LATER < NOW
    # Which comes first only matters to the assembler, which else may run out of registers.
    FIRST: tl.constexpr = TILES * BLOCKS < 3
    taken = _taken(zero, ZEROS, MIDDLE, BASE)
    part, total = _multiply(
        tl.zeros_like(sums) if GROUP > 0 else sums, tl.zeros([WARPS, SIDE, ROWS], tl.float32),
        values, taken, x_at, start, first, inside, width, FROM, TO, SHIFTED and not IS_LATER,
        IS_LATER, FIRST, EVEN, EXACT, ASSEMBLY,
    )  # fmt: skip
    if IS_LATER:
        part += _of_all(total, TILES) * taken[:, :, None]
    if GROUP > 0:
        part = sums + part * scale.to(tl.float32)[:, :, None]
    return part


@triton.jit
def _load_both(
    scales, zeros, start, end, first, step,
    STEP: tl.constexpr, BLOCKS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr,
    SECTION: tl.constexpr, ZEROS: tl.constexpr,
):  # fmt: skip
    """Scales and zero points; if there are none, the scales again."""
    scale = _load_tables(scales, start, end, first, step, STEP, BLOCKS, INPUTS, GROUP, SECTION)
    zero = scale
    if ZEROS:
        zero = _load_tables(zeros, start, end, first, step, STEP, BLOCKS, INPUTS, GROUP, SECTION)
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
    # Two tiles may leave no registers for all that saves instructions.
    PAIRS: tl.constexpr = ASSEMBLY > 0 and (KIND == 4 or TILES * BLOCKS < 4)
    MOVES: tl.constexpr = SECTIONS == 1 or TILES == 1
    warp = tl.arange(0, PARTS * ABREAST)
    first = warp // ABREAST * INPUTS
    w_at = _words_at(words, begin // INPUTS, warp // ABREAST, side, apart, outputs, blocks, TILES)
    x_at = x_rows[:, None, :] + (first + begin)[None, :, None]
    inside = inside[:, None, :, None]
    step = tl.cdiv(outputs, SHARING)
    scales_at = _places(scales, side, apart, outputs, SHARING, TILES)
    zeros_at = _places(zeros, side, apart, outputs, SHARING, TILES)
    sums = tl.zeros([PARTS * ABREAST, TILES * SIDE, ROWS], tl.float32)
    packed = _load_words(w_at, first, end - begin, STEP, BLOCKS, INPUTS, EVEN, PAIRS)
    scale, zero = _load_both(
        scales_at, zeros_at, begin, end, first, step, STEP, BLOCKS, INPUTS, GROUP, SECTION, ZEROS
    )
    for start in tl.range(begin, end, STEP * BLOCKS, num_stages=1):
        following = start + STEP * BLOCKS
        w_at += PARTS * BLOCKS * BLOCK
        left = end - following
        next_packed = _load_words(w_at, first, left, STEP, BLOCKS, INPUTS, EVEN, PAIRS)
        next_scale, next_zero = scale, zero
        if GROUP > 0:
            next_scale, next_zero = _load_both(
                scales_at, zeros_at, following, end, first, step,
                STEP, BLOCKS, INPUTS, GROUP, SECTION, ZEROS,
            )  # fmt: skip
        if WAIT:
            _wait_once(start, begin, EARLY)
        x_of = x_at if MOVES else x_at + (start - begin)
        for block in tl.static_range(BLOCKS):
            found = _unpaired(packed[block], PAIRS)
            values = unpack(found, x_rows.dtype.element_ty, KIND, BASE, ASSEMBLY)
            for section in tl.static_range(SECTIONS):
                sums = _add_section(
                    sums, values, scale[block * SECTIONS + section],
                    zero[block * SECTIONS + section], x_of + block * STEP, start + block * STEP,
                    first, inside, width, section * VALUES // SECTIONS,
                    (section + 1) * VALUES // SECTIONS, ZEROS or MIDDLE != BASE, BASE, MIDDLE,
                    GROUP, ZEROS, EVEN, EXACT, ASSEMBLY, TILES, BLOCKS,
                )  # fmt: skip
        if MOVES:
            x_at += STEP * BLOCKS
        packed, scale, zero = next_packed, next_scale, next_zero
    if GROUP == 0:
        sums *= scale[0].to(tl.float32)[:, :, None]
    return sums
