/* Vectors, element types and exp for all kernels.
 *
 * A kernel file includes this once and its body once per element type: SCALAR is the type in
 * memory, LOAD and STORE convert to and from float, NAME(x) gives each instance its own name.
 */
#ifndef JACKFIELD_SIMD_H
#define JACKFIELD_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vfloat __attribute__((vector_size(LANES * 4)));
typedef uint32_t vword __attribute__((vector_size(LANES * 4)));
typedef uint16_t vhalf __attribute__((vector_size(LANES * 2)));
typedef uint16_t bfloat;

#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#if LANES == 16
#define EVEN(a, b) SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(a, b) SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define ZIP_LOW(a, b) SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b) SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif LANES == 8
#define EVEN(a, b) SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(a, b) SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define ZIP_LOW(a, b) SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define EVEN(a, b) SHUFFLE(a, b, 0, 2, 4, 6)
#define ODD(a, b) SHUFFLE(a, b, 1, 3, 5, 7)
#define ZIP_LOW(a, b) SHUFFLE(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) SHUFFLE(a, b, 2, 6, 3, 7)
#endif

INLINE vfloat load_float(const float *from)
{
    vfloat v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store_float(float *to, vfloat v)
{
    memcpy(to, &v, sizeof v);
}

INLINE vfloat load_bfloat(const bfloat *from)
{
    vhalf h;
    memcpy(&h, from, sizeof h);
    return (vfloat)(__builtin_convertvector(h, vword) << 16);
}

INLINE float widen_float(float x)
{
    return x;
}

INLINE float narrow_float(float x)
{
    return x;
}

INLINE float widen_bfloat(bfloat x)
{
    union { uint32_t word; float value; } u = {.word = (uint32_t)x << 16};
    return u.value;
}

/* To nearest, ties to even; a NaN stays one. */
INLINE bfloat narrow_bfloat(float x)
{
    union { float value; uint32_t word; } u = {.value = x};
    uint32_t rounded = (u.word + 0x7fff + ((u.word >> 16) & 1)) >> 16;
    return (bfloat)(x != x ? 0x7fc0 : rounded);
}

/* Without branches, so that loops over it vectorise; about one unit in the last place. */
INLINE float fast_exp(float x)
{
    const float low = -87.33654f, high = 88.37626f;
    float c = x < low ? low : x;
    c = c > high ? high : c;
    float n = (c * 1.44269504f + 12582912.0f) - 12582912.0f;
    float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    union { int32_t word; float value; } power = {.word = ((int32_t)n + 127) << 23};
    float y = (p * r * r + r + 1.0f) * power.value;
    return x < low ? 0.0f : y;
}

/* Sums of LANES vectors: lane i of the result is the sum of all lanes of v[i]. */
INLINE vfloat sums_of(vfloat *v)
{
#pragma GCC unroll 4
    for (int left = LANES / 2; left > 0; left /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < left; i++)
            v[i] = EVEN(v[2 * i], v[2 * i + 1]) + ODD(v[2 * i], v[2 * i + 1]);
    return v[0];
}

/* Rows become columns of a LANES x LANES square: repeated perfect shuffles. */
INLINE void transpose(vfloat *v)
{
#pragma GCC unroll 4
    for (int done = 1; done < LANES; done *= 2) {
        vfloat t[LANES];
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            t[2 * i] = ZIP_LOW(v[i], v[i + LANES / 2]);
            t[2 * i + 1] = ZIP_HIGH(v[i], v[i + LANES / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            v[i] = t[i];
    }
}

#endif
