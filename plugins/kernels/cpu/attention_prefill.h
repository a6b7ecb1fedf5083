/* Prefill of up to ROWS query rows (tokens times group) of one key/value head, for SCALAR:
 * keys in tiles, online softmax in float. */

/* c[BLOCK_ROWS, VECTORS * LANES] (+)= a[BLOCK_ROWS, depth] * b[depth, VECTORS * LANES]. */
INLINE void NAME(product_block)(const int VECTORS, const float *a, int64_t a_stride, const float *b,
                                int64_t b_stride, float *c, int64_t c_stride, int64_t depth,
                                const int ADD)
{
    vfloat sum[BLOCK_ROWS][MAX_VECTORS];
#pragma GCC unroll 6
    for (int r = 0; r < BLOCK_ROWS; r++)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++)
            sum[r][j] = ADD ? load_float(c + r * c_stride + j * LANES) : (vfloat){0};
    for (int64_t p = 0; p < depth; p++) {
        vfloat right[MAX_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++)
            right[j] = load_float(b + p * b_stride + j * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < BLOCK_ROWS; r++)
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; j++)
                sum[r][j] += a[r * a_stride + p] * right[j];
    }
#pragma GCC unroll 6
    for (int r = 0; r < BLOCK_ROWS; r++)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++)
            store_float(c + r * c_stride + j * LANES, sum[r][j]);
}

INLINE void NAME(product)(const float *a, int64_t a_stride, const float *b, int64_t width, float *c,
                          int64_t rows, int64_t depth, const int ADD)
{
    for (int64_t r = 0; r < rows; r += BLOCK_ROWS) {
        const float *left = a + r * a_stride;
        float *to = c + r * width;
        int64_t d = 0;
        for (; d + MAX_VECTORS * LANES <= width; d += MAX_VECTORS * LANES)
            NAME(product_block)(MAX_VECTORS, left, a_stride, b + d, width, to + d, width, depth, ADD);
        for (; d < width; d += LANES)
            NAME(product_block)(1, left, a_stride, b + d, width, to + d, width, depth, ADD);
    }
}

/* Keys become columns [width, TILE]; values stay rows [TILE, width]; what is beyond `count` is 0. */
static void NAME(load_tile)(const layer *l, const int64_t *offsets, int64_t count, float *keys,
                            float *values)
{
    const SCALAR *k = l->k, *v = l->v;
    int64_t width = l->head_dim;
    for (int64_t at = 0; at < TILE; at += LANES)
        for (int64_t d = 0; d < width; d += LANES) {
            vfloat square[LANES];
            for (int i = 0; i < LANES; i++)
                square[i] = at + i < count ? LOAD(k + offsets[at + i] + d) : (vfloat){0};
            transpose(square);
            for (int i = 0; i < LANES; i++)
                store_float(keys + (d + i) * TILE + at, square[i]);
        }
    for (int64_t at = 0; at < count; at++)
        for (int64_t d = 0; d < width; d += LANES)
            store_float(values + at * width + d, LOAD(v + offsets[at] + d));
}

/* One row of scores becomes weights; the row's sums so far are scaled to the new maximum. */
INLINE void NAME(soften)(float *s, int64_t low, int64_t high, float *maximum, float *sum,
                         float *out, int64_t width)
{
    float top = *maximum, total = 0;
    if (low > 0 || high < TILE)
        for (int64_t i = 0; i < TILE; i++)
            s[i] = i >= low && i < high ? s[i] : -INFINITY;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < TILE; i++)
        top = top < s[i] ? s[i] : top;
    if (top == -INFINITY) {
        memset(s, 0, TILE * sizeof *s);
        return;
    }
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < TILE; i++) {
        s[i] = fast_exp(s[i] - top);
        total += s[i];
    }
    if (top != *maximum) {
        float factor = fast_exp(*maximum - top);
        *sum *= factor;
        for (int64_t d = 0; d < width; d++)
            out[d] *= factor;
        *maximum = top;
    }
    *sum += total;
}

static void NAME(prefill)(const batch *b, const layer *l, const item *it, int64_t head,
                          const SCALAR *q, const int64_t *q_strides, SCALAR *to,
                          const int64_t *out_strides)
{
    float queries[(ROWS + BLOCK_ROWS) * MAX_HEAD] __attribute__((aligned(64)));
    float out[(ROWS + BLOCK_ROWS) * MAX_HEAD] __attribute__((aligned(64)));
    float scores[(ROWS + BLOCK_ROWS) * TILE] __attribute__((aligned(64)));
    float keys[MAX_HEAD * TILE] __attribute__((aligned(64)));
    float values[MAX_HEAD * TILE] __attribute__((aligned(64)));
    float maxima[ROWS + BLOCK_ROWS], sums[ROWS + BLOCK_ROWS];
    int64_t offsets[TILE], width = l->head_dim, group = l->group;
    int64_t past = b->lens[it->slice] - b->query_start[it->slice + 1];

    int64_t rows = (it->end - it->begin) * group;
    int64_t padded = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;
    /* The position of token t of the batch is t + past. */
    int64_t first = it->begin + past, stop = it->end + past;
    int64_t begin = l->window && first + 1 > l->window ? first + 1 - l->window : 0;
    for (int64_t r = 0; r < rows; r++) {
        const SCALAR *from = q + (it->begin + r / group) * q_strides[0]
                             + (head * group + r % group) * q_strides[1];
        for (int64_t d = 0; d < width; d++)
            queries[r * width + d] = WIDEN(from[d]) * l->scale;
        maxima[r] = -INFINITY;
        sums[r] = 0;
    }
    memset(queries + rows * width, 0, (padded - rows) * width * sizeof *queries);
    memset(out, 0, padded * width * sizeof *out);
    for (int64_t at = begin; at < stop; at += TILE) {
        int64_t count = stop - at < TILE ? stop - at : TILE;
        row_offsets(b, l, it->slice, head, at, at + count, offsets);
        NAME(load_tile)(l, offsets, count, keys, values);
        NAME(product)(queries, width, keys, TILE, scores, padded, width, 0);
        for (int64_t r = 0; r < rows; r++) {
            int64_t position = first + r / group;
            int64_t low = l->window ? position + 1 - l->window - at : 0;
            NAME(soften)(scores + r * TILE, low, position + 1 - at, maxima + r, sums + r,
                         out + r * width, width);
        }
        NAME(product)(scores, TILE, values, width, out, padded, count, 1);
    }
    for (int64_t r = 0; r < rows; r++) {
        SCALAR *row = to + (it->begin + r / group) * out_strides[0]
                      + (head * group + r % group) * out_strides[1];
        float inverse = 1.0f / sums[r];
        for (int64_t d = 0; d < width; d++)
            row[d] = NARROW(out[r * width + d] * inverse);
    }
}
