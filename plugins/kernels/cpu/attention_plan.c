/* The work list of a step. Long tasks first: threads take tasks as they become free. */
#include "attention.h"

static int64_t plan_decode(const batch *b, const layer *l, int64_t slice, item *to, int64_t scratch)
{
    int64_t length = b->lens[slice];
    int64_t first = l->window && length > l->window ? length - l->window : 0;
    /* Pieces begin at multiples of PIECE, whatever the window. */
    int64_t base = first - first % PIECE;
    int64_t parts = (length - base + PIECE - 1) / PIECE;
    for (int64_t p = 0; p < parts; p++) {
        int64_t begin = base + p * PIECE, end = begin + PIECE;
        to[p] = (item){.slice = (int32_t)slice,
                       .begin = (int32_t)(begin < first ? first : begin),
                       .end = (int32_t)(end > length ? length : end),
                       .part = (int32_t)p, .parts = (int32_t)parts,
                       .scratch = (int32_t)scratch};
    }
    return parts;
}

static int64_t plan_prefill(const batch *b, const layer *l, int64_t slice, item *to)
{
    int64_t tokens = ROWS / l->group > 1 ? ROWS / l->group : 1, count = 0;
    int64_t begin = b->query_start[slice], end = b->query_start[slice + 1];
    for (int64_t stop = end; stop > begin; stop -= tokens, count++) {
        int64_t start = stop - tokens < begin ? begin : stop - tokens;
        to[count] = (item){.slice = (int32_t)slice, .begin = (int32_t)start, .end = (int32_t)stop};
    }
    return count;
}

/* Layers of one shape share the list; it is made at the first of them. */
void jackfield_plan(batch *b, const layer *l)
{
    if (b->num_items >= 0 && b->planned_rows == l->group && b->planned_window == l->window)
        return;
    int64_t count = 0;
    for (int64_t slice = b->decodes; slice < b->slices; slice++)
        count += plan_prefill(b, l, slice, b->items + count);
    int64_t scratch = 0;
    for (int64_t slice = 0; slice < b->decodes; slice++) {
        int64_t parts = plan_decode(b, l, slice, b->items + count, scratch);
        scratch += parts > 1 ? parts : 0;
        count += parts;
    }
    b->num_items = count;
    b->planned_rows = l->group;
    b->planned_window = l->window;
}
