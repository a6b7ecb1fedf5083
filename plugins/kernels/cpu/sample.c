/* Sampling: greedy, or an inverse CDF at one uniform number per row.
 *
 * Filters in this order: temperature, min_p, top_k, top_p, each on the renormalised result of those
 * before. The CDF runs over what is kept in the order of ids. Nothing is sorted: bounds rule out
 * almost the whole vocabulary, and a radix selection on what is left finds the last one kept.
 */
#include <omp.h>
#include <stddef.h>

#include "simd.h"

#define BLOCK 256 /* logits whose maximum is noted */
#define BINS 2048

typedef struct {
    float temperature, top_p, min_p;
    int64_t top_k;
    double uniform;
} request;

/* What is left of a row's vocabulary, by rising id. key: an integer that orders as the logit. */
typedef struct {
    int64_t count;
    int32_t *ids;
    uint32_t *keys;
    float *weights;
} candidates;

/* Kept are keys above `key`, and the first `take` of those that equal it. */
typedef struct {
    uint32_t key;
    int64_t take;
} cut;

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Two rounds of the finaliser of splitmix64; 48 bits, so that a product stays below its total. */
static double uniform(uint64_t seed, uint64_t position)
{
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    return (double)(mix(mix(seed + golden) + (position + 1) * golden) >> 16) * 0x1p-48;
}

static uint32_t key_of(float x)
{
    union { float value; uint32_t word; } u = {.value = x + 0.0f};
    return u.word ^ (u.word >> 31 ? 0xffffffffu : 0x80000000u);
}

static float max_of(const float *x, int64_t count)
{
    float top = -INFINITY;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < count; i++)
        top = top < x[i] ? x[i] : top;
    return top;
}

static int64_t block_size(int64_t block, int64_t vocabulary)
{
    int64_t left = vocabulary - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

static float block_maxima(const float *logits, int64_t vocabulary, float *maxima)
{
    int64_t blocks = (vocabulary + BLOCK - 1) / BLOCK;
    for (int64_t i = 0; i < blocks; i++)
        maxima[i] = max_of(logits + i * BLOCK, block_size(i, vocabulary));
    return max_of(maxima, blocks);
}

static int64_t first_equal(const float *x, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        if (x[i] == value)
            return i;
    return 0;
}

static int64_t greedy(const float *logits, int64_t vocabulary, float *maxima)
{
    float top = block_maxima(logits, vocabulary, maxima);
    int64_t block = first_equal(maxima, (vocabulary + BLOCK - 1) / BLOCK, top);
    return block * BLOCK + first_equal(logits + block * BLOCK, block_size(block, vocabulary), top);
}

/* Walk keys from the highest until `limit` is reached, in counts or, if given, in weights. */
static cut reach(const uint32_t *keys, const float *weights, int64_t count, double limit)
{
    const int shifts[3] = {21, 10, 0};
    uint32_t prefix = 0, fixed = 0;
    double before = 0, bins[BINS];
    for (int level = 0; level < 3; level++) {
        int shift = shifts[level];
        uint32_t size = level == 2 ? 1024 : BINS;
        memset(bins, 0, sizeof bins);
        for (int64_t i = 0; i < count; i++)
            if ((keys[i] & fixed) == prefix)
                bins[keys[i] >> shift & (size - 1)] += weights ? weights[i] : 1.0;
        int64_t bin = size - 1;
        for (; bin >= 0 && before + bins[bin] < limit; bin--)
            before += bins[bin];
        if (bin < 0)
            return (cut){0, count};
        prefix |= (uint32_t)bin << shift;
        fixed |= (size - 1) << shift;
    }
    if (!weights)
        return (cut){prefix, (int64_t)(limit - before)};
    int64_t take = 0;
    for (int64_t i = 0; i < count && before < limit; i++)
        if (keys[i] == prefix) {
            before += weights[i];
            take++;
        }
    return (cut){prefix, take};
}

static void keep(candidates *c, cut at)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < c->count; i++) {
        int in = c->keys[i] > at.key || (c->keys[i] == at.key && at.take-- > 0);
        c->ids[kept] = c->ids[i];
        c->keys[kept] = c->keys[i];
        c->weights[kept] = c->weights[i];
        kept += in;
    }
    c->count = kept;
}

static double total_of(const float *weights, int64_t count)
{
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; i++)
        total += weights[i];
    return total;
}

/* The first whose cumulative weight exceeds `target`; never one of weight 0. */
static int64_t pick(const float *weights, int64_t count, double target)
{
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += weights[i];
        last = weights[i] > 0 ? i : last;
        if (sum > target)
            return i;
    }
    return last;
}

/* Weights of a block; 0 where min_p drops it. */
INLINE void weigh(const float *logits, int64_t count, float top, float inverse, float least,
                  float *to)
{
    for (int64_t i = 0; i < count; i++) {
        float scaled = (logits[i] - top) * inverse;
        to[i] = scaled < least ? 0.0f : fast_exp(scaled);
    }
}

static int64_t draw_plain(const float *logits, int64_t vocabulary, float top, float least,
                          const request *r, double *sums)
{
    float weights[BLOCK], inverse = 1.0f / r->temperature;
    int64_t blocks = (vocabulary + BLOCK - 1) / BLOCK, block = 0;
    double total = 0, before = 0;
    for (int64_t i = 0; i < blocks; i++) {
        int64_t size = block_size(i, vocabulary);
        weigh(logits + i * BLOCK, size, top, inverse, least, weights);
        sums[i] = total_of(weights, size);
        total += sums[i];
    }
    double target = r->uniform * total;
    for (; block < blocks - 1 && before + sums[block] <= target; block++)
        before += sums[block];
    int64_t size = block_size(block, vocabulary);
    weigh(logits + block * BLOCK, size, top, inverse, least, weights);
    return block * BLOCK + pick(weights, size, target - before);
}

static double total_weight(const float *logits, int64_t vocabulary, float top, float inverse,
                           float least)
{
    float weights[BLOCK];
    double total = 0;
    for (int64_t at = 0; at < vocabulary; at += BLOCK) {
        int64_t size = block_size(at / BLOCK, vocabulary);
        weigh(logits + at, size, top, inverse, least, weights);
        total += total_of(weights, size);
    }
    return total;
}

/* A logit below which nothing can be among the k highest: the k-th highest block maximum. */
static float count_bound(const float *maxima, int64_t blocks, int64_t k, uint32_t *keys)
{
    if (k > blocks)
        return -INFINITY;
    for (int64_t i = 0; i < blocks; i++)
        keys[i] = key_of(maxima[i]);
    cut at = reach(keys, NULL, blocks, (double)k);
    for (int64_t i = 0; i < blocks; i++)
        if (keys[i] == at.key)
            return maxima[i];
    return -INFINITY;
}

static void gather(const float *logits, int64_t vocabulary, const float *maxima, float bound,
                   float top, float inverse, float least, candidates *to)
{
    int64_t count = 0;
    for (int64_t block = 0; block * BLOCK < vocabulary; block++) {
        if (maxima[block] < bound)
            continue;
        int64_t end = block * BLOCK + block_size(block, vocabulary);
        for (int64_t i = block * BLOCK; i < end; i++) {
            to->ids[count] = (int32_t)i;
            to->weights[count] = logits[i];
            count += logits[i] >= bound && (logits[i] - top) * inverse >= least;
        }
    }
    for (int64_t i = 0; i < count; i++)
        to->keys[i] = key_of(to->weights[i]);
    for (int64_t i = 0; i < count; i++)
        to->weights[i] = fast_exp((to->weights[i] - top) * inverse);
    to->count = count;
}

static int64_t draw_filtered(const float *logits, int64_t vocabulary, float top, float least,
                             const request *r, const float *maxima, candidates *c)
{
    float inverse = 1.0f / r->temperature, bound = -INFINITY;
    double total = 0;
    int some = r->top_k > 0 && r->top_k < vocabulary;
    if (some) {
        bound = count_bound(maxima, (vocabulary + BLOCK - 1) / BLOCK, r->top_k, c->keys);
    } else {
        total = total_weight(logits, vocabulary, top, inverse, least);
        /* All that weigh less than this together cannot fill the gap between top_p and 1. */
        double light = (1.0 - r->top_p) * total / (2.0 * vocabulary);
        bound = top + r->temperature * (logf((float)light) - 1e-3f);
    }
    gather(logits, vocabulary, maxima, bound, top, inverse, least, c);
    if (some && c->count > r->top_k)
        keep(c, reach(c->keys, NULL, c->count, (double)r->top_k));
    if (some)
        total = total_of(c->weights, c->count);
    if (r->top_p < 1.0f) {
        double limit = (double)r->top_p * total;
        keep(c, reach(c->keys, c->weights, c->count, limit > 0 ? limit : 0x1p-1022));
    }
    if (c->count == 0)
        return -1;
    return c->ids[pick(c->weights, c->count, r->uniform * total_of(c->weights, c->count))];
}

static int64_t draw(const float *logits, int64_t vocabulary, const request *r, float *scratch)
{
    int64_t blocks = (vocabulary + BLOCK - 1) / BLOCK;
    float *maxima = scratch;
    double *sums = (double *)(scratch + (blocks + 1) / 2 * 2);
    float *rest = (float *)(sums + blocks);
    candidates c = {0, (int32_t *)rest, (uint32_t *)(rest + vocabulary + 1),
                    rest + 2 * (vocabulary + 1)};
    if (!(r->temperature > 0))
        return greedy(logits, vocabulary, maxima);
    float top = block_maxima(logits, vocabulary, maxima), least = logf(r->min_p);
    int64_t token = -1;
    if (r->top_k > 0 || r->top_p < 1.0f)
        token = draw_filtered(logits, vocabulary, top, least, r, maxima, &c);
    else
        token = draw_plain(logits, vocabulary, top, least, r, sums);
    return token < 0 ? greedy(logits, vocabulary, maxima) : token;
}

/* Floats of scratch that one thread needs; the caller allocates as many per thread. */
static int64_t scratch_floats(int64_t vocabulary)
{
    int64_t floats = 3 * (vocabulary + 1) + 3 * (vocabulary / BLOCK + 2);
    return (floats + 15) / 16 * 16;
}

void jackfield_argmax(const float *logits, int64_t stride, int64_t rows, int64_t vocabulary,
                      float *scratch, int64_t *to, int threads)
{
    int64_t blocks = vocabulary / BLOCK + 1;
#pragma omp parallel for num_threads(threads) if (rows * vocabulary > 1 << 14)
    for (int64_t row = 0; row < rows; row++)
        to[row] = greedy(logits + row * stride, vocabulary, scratch + row * blocks);
}

void jackfield_sample(const float *logits, int64_t stride, int64_t rows, int64_t vocabulary,
                      const float *temperature, const int64_t *top_k, const float *top_p,
                      const float *min_p, const int64_t *seeds, const int64_t *positions,
                      float *scratch, int64_t *to, int threads)
{
#pragma omp parallel num_threads(threads) if (rows * vocabulary > 1 << 14)
    {
        float *own = scratch + omp_get_thread_num() * scratch_floats(vocabulary);
#pragma omp for schedule(dynamic)
        for (int64_t row = 0; row < rows; row++) {
            request r = {temperature[row], top_p[row], min_p[row], top_k[row],
                         uniform((uint64_t)seeds[row], (uint64_t)positions[row])};
            to[row] = draw(logits + row * stride, vocabulary, &r, own);
        }
    }
}
