/* Norms, rotary embedding and the feed-forward gate, for SCALAR. */

#define WORTH_THREADS (1 << 14)

INLINE void NAME(norm_row)(const SCALAR *x, const SCALAR *weight, int64_t width, float eps,
                           SCALAR *to)
{
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t d = 0; d < width; d++)
        squares += WIDEN(x[d]) * WIDEN(x[d]);
    float factor = 1.0f / sqrtf(squares / width + eps);
    for (int64_t d = 0; d < width; d++)
        to[d] = NARROW(WIDEN(x[d]) * factor * WIDEN(weight[d]));
}

/* x is `[outer, inner, width]` with strides; `to` is dense. */
void NAME(jackfield_rms_norm)(const SCALAR *x, int64_t outer, int64_t inner, int64_t width,
                              int64_t outer_stride, int64_t inner_stride, const SCALAR *weight,
                              float eps, SCALAR *to, int threads)
{
#pragma omp parallel for num_threads(threads) if (outer * inner * width > WORTH_THREADS)
    for (int64_t row = 0; row < outer * inner; row++)
        NAME(norm_row)(x + row / inner * outer_stride + row % inner * inner_stride, weight, width,
                       eps, to + row * width);
}

void NAME(jackfield_add_rms_norm)(const SCALAR *x, int64_t x_stride, SCALAR *residual,
                                  int64_t residual_stride, int64_t rows, int64_t width,
                                  const SCALAR *weight, float eps, SCALAR *to, int threads)
{
#pragma omp parallel for num_threads(threads) if (rows * width > WORTH_THREADS)
    for (int64_t row = 0; row < rows; row++) {
        const SCALAR *from = x + row * x_stride;
        SCALAR *sum = residual + row * residual_stride;
        for (int64_t d = 0; d < width; d++)
            sum[d] = NARROW(WIDEN(sum[d]) + WIDEN(from[d]));
        NAME(norm_row)(sum, weight, width, eps, to + row * width);
    }
}

INLINE void NAME(rotate)(SCALAR *restrict low, SCALAR *restrict high, const float *restrict cosine,
                         const float *restrict sine, int64_t width)
{
    for (int64_t d = 0; d < width; d++) {
        float a = WIDEN(low[d]), b = WIDEN(high[d]);
        low[d] = NARROW(a * cosine[d] - b * sine[d]);
        high[d] = NARROW(b * cosine[d] + a * sine[d]);
    }
}

void NAME(jackfield_rope)(SCALAR *q, int64_t q_token, int64_t q_head, int64_t q_heads, SCALAR *k,
                          int64_t k_token, int64_t k_head, int64_t k_heads, const float *cosine,
                          int64_t cosine_stride, const float *sine, int64_t sine_stride,
                          int64_t tokens, int64_t width, int threads)
{
#pragma omp parallel for num_threads(threads) if (tokens * q_heads * width > WORTH_THREADS)
    for (int64_t t = 0; t < tokens; t++) {
        const float *c = cosine + t * cosine_stride, *s = sine + t * sine_stride;
        for (int64_t h = 0; h < q_heads; h++) {
            SCALAR *head = q + t * q_token + h * q_head;
            NAME(rotate)(head, head + width, c, s, width);
        }
        for (int64_t h = 0; h < k_heads; h++) {
            SCALAR *head = k + t * k_token + h * k_head;
            NAME(rotate)(head, head + width, c, s, width);
        }
    }
}

/* gate and up side by side in each row of 2 * width; `to` is dense. */
void NAME(jackfield_silu_mul)(const SCALAR *gate_up, int64_t stride, int64_t rows, int64_t width,
                              SCALAR *restrict to, int threads)
{
#pragma omp parallel for num_threads(threads) if (rows * width > WORTH_THREADS)
    for (int64_t row = 0; row < rows; row++) {
        const SCALAR *gate = gate_up + row * stride, *up = gate + width;
        SCALAR *out = to + row * width;
        for (int64_t d = 0; d < width; d++) {
            float x = WIDEN(gate[d]);
            out[d] = NARROW(x / (1.0f + fast_exp(-x)) * WIDEN(up[d]));
        }
    }
}
