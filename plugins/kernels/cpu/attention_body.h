/* The two entry points of attention, for SCALAR. */
#include "attention_decode.h"
#include "attention_prefill.h"

void NAME(jackfield_write)(const batch *b, const layer *l, const SCALAR *k, int64_t k_token,
                           int64_t k_head, const SCALAR *v, int64_t v_token, int64_t v_head,
                           int threads)
{
    int64_t heads = l->kv_heads, width = l->head_dim;
    size_t bytes = width * sizeof(SCALAR);
#pragma omp parallel for num_threads(threads) if (b->tokens * heads * width > 1 << 16)
    for (int64_t t = 0; t < b->tokens; t++) {
        int64_t block = b->slots[t] / l->block_size, at = b->slots[t] % l->block_size;
        for (int64_t h = 0; h < heads; h++) {
            int64_t to = ((block * heads + h) * l->block_size + at) * width;
            memcpy((SCALAR *)l->k + to, k + t * k_token + h * k_head, bytes);
            memcpy((SCALAR *)l->v + to, v + t * v_token + h * v_head, bytes);
        }
    }
}

/* The parts of one decode, in order, into the first of them; then the division. */
static void NAME(merge)(const layer *l, const item *it, float *part, int64_t part_stride,
                        float *maxima, float *sums, int64_t stat_stride, SCALAR *to,
                        int64_t head_stride)
{
    int64_t width = l->head_dim;
    for (int64_t row = 0; row < l->group; row++) {
        float top = maxima[row], total = 0, *first = part + row * width;
        for (int64_t p = 1; p < it->parts; p++)
            top = top < maxima[p * stat_stride + row] ? maxima[p * stat_stride + row] : top;
        for (int64_t p = 0; p < it->parts; p++) {
            float factor = fast_exp(maxima[p * stat_stride + row] - top);
            float *other = first + p * part_stride;
            total += sums[p * stat_stride + row] * factor;
            for (int64_t d = 0; d < width; d++)
                first[d] = p ? first[d] + other[d] * factor : first[d] * factor;
        }
        for (int64_t d = 0; d < width; d++)
            to[row * head_stride + d] = NARROW(first[d] / total);
    }
}

/* scratch: for each part of a split decode `[heads, head_dim]` sums, `[heads]` maxima, `[heads]`
 * totals. Decodes of one part need none. */
void NAME(jackfield_attend)(batch *b, layer *l, int64_t q_heads, const SCALAR *q,
                            int64_t q_token, int64_t q_head, SCALAR *out, int64_t out_token, int64_t out_head,
                            float *scratch, int threads)
{
    l->group = q_heads / l->kv_heads;
    jackfield_plan(b, l);
    int64_t heads = l->kv_heads, group = l->group, width = l->head_dim;
    int64_t part_stride = heads * group * (width + 2);
    int64_t q_strides[2] = {q_token, q_head}, out_strides[2] = {out_token, out_head};
    int split = 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (b->num_items * heads > 1) \
    reduction(| : split)
    for (int64_t task = 0; task < b->num_items * heads; task++) {
        const item *it = b->items + task / heads;
        int64_t head = task % heads;
        if (it->parts == 0) {
            NAME(prefill)(b, l, it, head, q, q_strides, out, out_strides);
            continue;
        }
        const SCALAR *rows = q + it->slice * q_token + head * group * q_head;
        if (it->parts > 1) {
            float *part = scratch + (it->scratch + it->part) * part_stride;
            float *stats = part + heads * group * width + head * group;
            NAME(decode)(b, l, it, head, rows, q_head, part + head * group * width, stats,
                         stats + heads * group);
            split = 1;
            continue;
        }
        float sums[group * width], maxima[group], totals[group];
        NAME(decode)(b, l, it, head, rows, q_head, sums, maxima, totals);
        NAME(merge)(l, it, sums, 0, maxima, totals, 0, out + it->slice * out_token
                    + head * group * out_head, out_head);
    }
    if (!split)
        return;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t task = 0; task < b->num_items * heads; task++) {
        const item *it = b->items + task / heads;
        int64_t head = task % heads;
        if (it->parts < 2 || it->part > 0)
            continue;
        float *part = scratch + it->scratch * part_stride;
        float *stats = part + heads * group * width + head * group;
        NAME(merge)(l, it, part + head * group * width, part_stride, stats,
                    stats + heads * group, part_stride, out + it->slice * out_token
                    + head * group * out_head, out_head);
    }
}
