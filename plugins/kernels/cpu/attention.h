/* What the instances of attention share: the batch, the work list and float arithmetic. */
#ifndef JACKFIELD_ATTENTION_H
#define JACKFIELD_ATTENTION_H

#include "simd.h"

#define PIECE 512       /* keys of one decode task: fixed, so that results do not depend on the batch */
#define TILE 64         /* keys of one prefill step */
#define BLOCK_ROWS 6    /* query rows whose sums are held in registers */
#define ROWS 96         /* query rows of one prefill task */
#define MAX_HEAD 256
#if LANES == 16
#define MAX_VECTORS 4
#else
#define MAX_VECTORS 2
#endif

/* One unit of work for one key/value head. Of a decode: keys [begin, end) as part `part` of
 * `parts`. Of a prefill (parts == 0): tokens [begin, end) of the batch. */
typedef struct {
    int32_t slice, begin, end, part, parts, scratch;
} item;

typedef struct {
    const int32_t *query_start, *lens, *tables;
    const int64_t *slots;
    int64_t tables_stride, slices, decodes, tokens;
    item *items;
    int64_t num_items, planned_rows, planned_window;
} batch;

/* One layer: pool tensors [num_blocks, kv_heads, block_size, head_dim]; window 0 = none. group:
 * query heads of one key/value head, known at the first call that brings queries. */
typedef struct {
    void *k, *v;
    int64_t kv_heads, block_size, head_dim, group, window;
    float scale;
} layer;

INLINE int64_t row_offset(const batch *b, const layer *l, int64_t slice, int64_t head, int64_t at)
{
    int64_t block = b->tables[slice * b->tables_stride + at / l->block_size];
    return ((block * l->kv_heads + head) * l->block_size + at % l->block_size) * l->head_dim;
}

/* Offsets of the rows of positions [begin, end): one look-up a page. */
INLINE void row_offsets(const batch *b, const layer *l, int64_t slice, int64_t head, int64_t begin,
                        int64_t end, int64_t *to)
{
    int64_t size = l->block_size;
    for (int64_t at = begin; at < end;) {
        int64_t offset = row_offset(b, l, slice, head, at);
        int64_t stop = at - at % size + size;
        stop = stop < end ? stop : end;
        for (; at < stop; at++, offset += l->head_dim)
            *to++ = offset;
    }
}

void jackfield_plan(batch *b, const layer *l);

#endif
