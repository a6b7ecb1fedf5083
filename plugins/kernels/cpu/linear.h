/* Dense products with packed weights: panels of COLUMNS outputs, inputs in order.
 *
 * A weight that bfloat16 holds exactly is kept in half: each 32-bit word of a panel has output j in
 * its low half and output j + LANES in its high half. Products and sums are float32 either way.
 */
#ifndef JACKFIELD_LINEAR_H
#define JACKFIELD_LINEAR_H

#include <omp.h>

#include "simd.h"

#define COLUMNS (2 * LANES)
/* As many as there are registers for their sums, and no more than a vector is long. */
#if LANES == 16
#define MOST_ROWS 12
#elif LANES == 8
#define MOST_ROWS 6
#else
#define MOST_ROWS 4
#endif
#define CACHED_FLOATS (192 * 1024)
#define WORTH_WIDENING 6 /* tiles that share a panel */
#define WORD 4

typedef struct {
    vfloat low, high;
} columns;

INLINE columns read_half(const uint32_t *from)
{
    vword w;
    memcpy(&w, from, sizeof w);
    return (columns){(vfloat)(w << 16), (vfloat)(w & 0xffff0000u)};
}

INLINE columns read_full(const uint32_t *from)
{
    const float *values = (const float *)from;
    return (columns){load_float(values), load_float(values + LANES)};
}

INLINE void widen_panel(const uint32_t *panel, int64_t inputs, float *to)
{
    for (int64_t i = 0; i < inputs; i++) {
        columns w = read_half(panel + i * LANES);
        store_float(to + i * COLUMNS, w.low);
        store_float(to + i * COLUMNS + LANES, w.high);
    }
}

/* `soon` is fetched into the outer cache meanwhile, `step` bytes at each input. */
INLINE void sum_rows(const float *x, const uint32_t *panel, int64_t inputs, int rows, int full,
                     const char *soon, int64_t step, vfloat sums[MOST_ROWS][2])
{
    const int64_t words = full ? COLUMNS : LANES;
    vfloat s[MOST_ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        s[r][0] = s[r][1] = (vfloat){0};
    for (int64_t i = 0; i < inputs; i++) {
        columns w = full ? read_full(panel) : read_half(panel);
        __builtin_prefetch(soon, 0, 2);
        soon += step;
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            s[r][0] += x[r] * w.low;
            s[r][1] += x[r] * w.high;
        }
        panel += words;
        x += rows;
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        sums[r][0] = s[r][0], sums[r][1] = s[r][1];
}

#define CASE(n)                                                                                    \
    case n:                                                                                        \
        sum_rows(x, panel, inputs, n, full, soon, step, sums);                                          \
        break;

INLINE void sum_tile(const float *x, const uint32_t *panel, int64_t inputs, int rows, int full,
                     const char *soon, int64_t step, vfloat sums[MOST_ROWS][2])
{
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4)
#if MOST_ROWS > 4
        CASE(5) CASE(6)
#endif
#if MOST_ROWS > 6
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
}

INLINE uint32_t bits_of(float x)
{
    union { float value; uint32_t word; } u = {.value = x};
    return u.word;
}

/* Rows are cut into tiles of nearly equal height. */
INLINE int64_t tiles_of(int64_t rows)
{
    return (rows + MOST_ROWS - 1) / MOST_ROWS;
}

INLINE int64_t tile_start(int64_t rows, int64_t tile)
{
    return rows * tile / tiles_of(rows);
}

#endif
