/* The dense product for SCALAR inputs and outputs. */

/* Rows become columns: to[i * rows + r]. A vector that is longer than a column is overwritten by
 * the columns after it; the last ones are written one by one, to stay inside the tile. */
INLINE void NAME(spread_tile)(const SCALAR *x, int64_t stride, int64_t inputs, int rows, float *to)
{
    _Static_assert(MOST_ROWS <= LANES, "the rows of a tile fit the square that is transposed");
    int64_t i = 0;
    for (; i + 2 * LANES <= inputs; i += LANES) {
        vfloat v[LANES];
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++)
            v[r] = r < rows ? LOAD(x + r * stride + i) : (vfloat){0};
        transpose(v);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            store_float(to + (i + j) * rows, v[j]);
    }
    for (; i < inputs; i++)
        for (int r = 0; r < rows; r++)
            to[i * rows + r] = WIDEN(x[r * stride + i]);
}

INLINE void NAME(write_tile)(vfloat sums[MOST_ROWS][2], int rows, const float *bias, SCALAR *to,
                             int64_t stride, int64_t count)
{
    for (int r = 0; r < rows; r++, to += stride) {
        float row[COLUMNS];
        memcpy(row, sums[r], sizeof row);
        if (bias)
            for (int64_t j = 0; j < count; j++)
                row[j] += bias[j];
        if (count == COLUMNS)
            for (int64_t j = 0; j < COLUMNS; j++)
                to[j] = NARROW(row[j]);
        else
            for (int64_t j = 0; j < count; j++)
                to[j] = NARROW(row[j]);
    }
}

/* One panel of the weight with some tiles of rows; `soon` is fetched meanwhile. */
INLINE void NAME(multiply_panel)(const float *x, int64_t rows, int64_t tile, int64_t last_tile,
                                 int64_t inputs, const uint32_t *panel, int full, const char *soon,
                                 int64_t bytes, const float *bias, SCALAR *to, int64_t stride,
                                 int64_t count)
{
    const int64_t step = bytes / (last_tile - tile);
    for (; tile < last_tile; tile++) {
        const int64_t start = tile_start(rows, tile);
        const int height = (int)(tile_start(rows, tile + 1) - start);
        vfloat sums[MOST_ROWS][2];
        sum_tile(x + start * inputs, panel, inputs, height, full, soon, step, sums);
        soon += step * inputs;
        NAME(write_tile)(sums, height, bias, to + start * stride, stride, count);
    }
}

/* x is `[rows, inputs]` and `to` is `[rows, outputs]`, both with a stride. scratch holds
 * inputs * (rows + threads * COLUMNS) floats. A block of tiles stays in a core's cache while all
 * panels pass; a panel in half that serves many tiles is widened once. */
void NAME(jackfield_linear)(const SCALAR *x, int64_t x_stride, int64_t rows, int64_t inputs,
                            const uint32_t *weight, int full, int64_t outputs, const float *bias,
                            SCALAR *to, int64_t stride, float *scratch, int threads)
{
    const int64_t panels = (outputs + COLUMNS - 1) / COLUMNS, tiles = tiles_of(rows);
    const int64_t words = full ? COLUMNS : LANES;
    int64_t block = CACHED_FLOATS / (inputs * MOST_ROWS);
    block = block < 1 ? 1 : block;
#pragma omp parallel num_threads(threads)
    {
        float *wide = scratch + inputs * (rows + omp_get_thread_num() * COLUMNS);
#pragma omp for schedule(static)
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t start = tile_start(rows, tile);
            NAME(spread_tile)(x + start * x_stride, x_stride, inputs,
                              (int)(tile_start(rows, tile + 1) - start), scratch + start * inputs);
        }
        for (int64_t tile = 0; tile < tiles; tile += block) {
            const int64_t last = tile + block < tiles ? tile + block : tiles;
            const int widened = !full && last - tile >= WORTH_WIDENING;
#pragma omp for schedule(static) nowait
            for (int64_t panel = 0; panel < panels; panel++) {
                const int64_t first = panel * COLUMNS, left = outputs - first;
                const int64_t count = left < COLUMNS ? left : COLUMNS;
                const uint32_t *from = weight + panel * inputs * words;
                const char *soon = (const char *)(from + inputs * words);
                const float *shift = bias ? bias + first : 0;
                if (widened) {
                    widen_panel(from, inputs, wide);
                    from = (const uint32_t *)wide;
                }
                if (full || widened)
                    NAME(multiply_panel)(scratch, rows, tile, last, inputs, from, 1, soon,
                                         words * WORD, shift, to + first, stride, count);
                else
                    NAME(multiply_panel)(scratch, rows, tile, last, inputs, from, 0, soon,
                                         words * WORD, shift, to + first, stride, count);
            }
        }
    }
}

/* Fills the panels of a dense `[outputs, inputs]` weight; missing outputs are zero. `columns`, if
 * it is there, is told how many outputs a panel has. */
void NAME(jackfield_pack)(const SCALAR *weight, int64_t outputs, int64_t inputs, int full,
                          uint32_t *to, int64_t *columns, int threads)
{
    const int64_t words = full ? COLUMNS : LANES, panels = (outputs + COLUMNS - 1) / COLUMNS;
    if (columns)
        *columns = COLUMNS;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t panel = 0; panel < panels; panel++) {
        uint32_t *into = to + panel * inputs * words;
        memset(into, 0, inputs * words * sizeof *into);
        for (int64_t j = 0; j < COLUMNS && panel * COLUMNS + j < outputs; j++) {
            const SCALAR *row = weight + (panel * COLUMNS + j) * inputs;
            for (int64_t i = 0; i < inputs; i++) {
                const uint32_t bits = bits_of(WIDEN(row[i]));
                if (full)
                    into[i * words + j] = bits;
                else
                    into[i * words + j % LANES] |= j < LANES ? bits >> 16 : bits & 0xffff0000u;
            }
        }
    }
}
