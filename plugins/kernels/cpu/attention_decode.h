/* Decode of one piece of keys, for SCALAR: the query group of a key/value head is handled in
 * blocks of up to 4 rows, so that each key and value is loaded once for all of them. */

#define FETCH 2 /* into the outer cache */
#define AHEAD 16 /* keys between a load and its prefetch: pages lie anywhere in memory */

/* Bring rows [at, at + rows) near; past the last key, the first rows of `then`, if it is there. */
INLINE void NAME(fetch)(const SCALAR *from, const SCALAR *then, const int64_t *offsets, int64_t at,
                        int64_t rows, int64_t count, int64_t width)
{
    if (at + rows > count) {
        at -= count;
        from = then;
    }
    if (!from || at < 0 || at + rows > count)
        return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < width; d += 64 / (int64_t)sizeof(SCALAR))
            __builtin_prefetch(from + offsets[at + i] + d, 0, FETCH);
}

/* scores[key * STRIDE + row]; ROWS_ <= STRIDE and LANES % STRIDE == 0. */
INLINE void NAME(scores)(const int STRIDE, const int ROWS_, const float *q, const SCALAR *k,
                         const SCALAR *v, const int64_t *offsets, int64_t count, int64_t width,
                         float *to)
{
    const int keys = LANES / STRIDE;
    for (int64_t at = 0; at < count; at += keys) {
        vfloat sum[LANES];
        const SCALAR *row[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            sum[i] = (vfloat){0};
#pragma GCC unroll 16
        for (int i = 0; i < keys; i++)
            row[i] = k + offsets[at + i < count ? at + i : count - 1];
        NAME(fetch)(k, v, offsets, at + AHEAD, keys, count, width);
        for (int64_t d = 0; d < width; d += LANES)
#pragma GCC unroll 16
            for (int i = 0; i < keys; i++) {
                vfloat key = LOAD(row[i] + d);
#pragma GCC unroll 4
                for (int r = 0; r < ROWS_; r++)
                    sum[i * STRIDE + r] += key * load_float(q + r * width + d);
            }
        store_float(to + at * STRIDE, sums_of(sum));
    }
}

INLINE void NAME(weighted)(const int STRIDE, const int ROWS_, const int VECTORS, const float *p,
                           const SCALAR *v, const int64_t *offsets, int64_t count, int64_t width,
                           float *to)
{
    vfloat sum[4][MAX_VECTORS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS_; r++)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++)
            sum[r][j] = (vfloat){0};
    for (int64_t at = 0; at < count; at++) {
        const SCALAR *row = v + offsets[at];
        NAME(fetch)(v, 0, offsets, at + AHEAD, 1, count, VECTORS * LANES);
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) {
            vfloat value = LOAD(row + j * LANES);
#pragma GCC unroll 4
            for (int r = 0; r < ROWS_; r++)
                sum[r][j] += p[at * STRIDE + r] * value;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS_; r++)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++)
            store_float(to + r * width + j * LANES, sum[r][j]);
}

/* exp of the scores less their row's maximum, in place; maxima and sums per row. */
INLINE void NAME(exponentials)(const int STRIDE, const int ROWS_, float *scores, int64_t count,
                               float *maxima, float *sums)
{
    float top[LANES], total[LANES];
    int64_t whole = count * STRIDE / LANES * LANES, all = count * STRIDE;
    for (int i = 0; i < LANES; i++) {
        top[i] = -INFINITY;
        total[i] = 0;
    }
    for (int64_t at = 0; at < whole; at += LANES)
        for (int i = 0; i < LANES; i++)
            top[i] = top[i] < scores[at + i] ? scores[at + i] : top[i];
    for (int64_t at = whole; at < all; at++)
        top[at - whole] = top[at - whole] < scores[at] ? scores[at] : top[at - whole];
    for (int i = STRIDE; i < LANES; i++)
        top[i % STRIDE] = top[i % STRIDE] < top[i] ? top[i] : top[i % STRIDE];
    for (int i = STRIDE; i < LANES; i++)
        top[i] = top[i % STRIDE];
    for (int64_t at = 0; at < whole; at += LANES)
        for (int i = 0; i < LANES; i++) {
            scores[at + i] = fast_exp(scores[at + i] - top[i]);
            total[i] += scores[at + i];
        }
    for (int64_t at = whole; at < all; at++) {
        scores[at] = fast_exp(scores[at] - top[at - whole]);
        total[at - whole] += scores[at];
    }
    for (int i = STRIDE; i < LANES; i++)
        total[i % STRIDE] += total[i];
    for (int r = 0; r < ROWS_; r++) {
        maxima[r] = top[r];
        sums[r] = total[r];
    }
}

INLINE void NAME(rows)(const int STRIDE, const int ROWS_, const float *q, const layer *l,
                       const int64_t *offsets, int64_t count, float *to, float *maxima,
                       float *sums)
{
    float p[PIECE * 4 + LANES] __attribute__((aligned(64)));
    int64_t width = l->head_dim, d = 0;
    const SCALAR *v = l->v;
    NAME(scores)(STRIDE, ROWS_, q, l->k, v, offsets, count, width, p);
    NAME(exponentials)(STRIDE, ROWS_, p, count, maxima, sums);
    for (; d + MAX_VECTORS * LANES <= width; d += MAX_VECTORS * LANES)
        NAME(weighted)(STRIDE, ROWS_, MAX_VECTORS, p, v + d, offsets, count, width, to + d);
    for (; d < width; d += LANES)
        NAME(weighted)(STRIDE, ROWS_, 1, p, v + d, offsets, count, width, to + d);
}

static void NAME(rows_1)(const float *q, const layer *l, const int64_t *o, int64_t n, float *to,
                         float *m, float *s) { NAME(rows)(1, 1, q, l, o, n, to, m, s); }
static void NAME(rows_2)(const float *q, const layer *l, const int64_t *o, int64_t n, float *to,
                         float *m, float *s) { NAME(rows)(2, 2, q, l, o, n, to, m, s); }
static void NAME(rows_3)(const float *q, const layer *l, const int64_t *o, int64_t n, float *to,
                         float *m, float *s) { NAME(rows)(4, 3, q, l, o, n, to, m, s); }
static void NAME(rows_4)(const float *q, const layer *l, const int64_t *o, int64_t n, float *to,
                         float *m, float *s) { NAME(rows)(4, 4, q, l, o, n, to, m, s); }

/* Sums that are not yet divided go to `to` [group, head_dim]; maxima and sums to [group]. */
static void NAME(decode)(const batch *b, const layer *l, const item *it, int64_t head,
                         const SCALAR *q, int64_t q_head_stride, float *to, float *maxima,
                         float *sums)
{
    int64_t offsets[PIECE], count = it->end - it->begin, width = l->head_dim;
    float block[4 * MAX_HEAD] __attribute__((aligned(64)));
    row_offsets(b, l, it->slice, head, it->begin, it->end, offsets);
    for (int64_t row = 0; row < l->group; row += 4) {
        int64_t rows = l->group - row < 4 ? l->group - row : 4;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t d = 0; d < width; d++)
                block[r * width + d] = WIDEN(q[(row + r) * q_head_stride + d]) * l->scale;
        float *out = to + row * width, *m = maxima + row, *s = sums + row;
        if (rows == 1) NAME(rows_1)(block, l, offsets, count, out, m, s);
        if (rows == 2) NAME(rows_2)(block, l, offsets, count, out, m, s);
        if (rows == 3) NAME(rows_3)(block, l, offsets, count, out, m, s);
        if (rows == 4) NAME(rows_4)(block, l, offsets, count, out, m, s);
    }
}
