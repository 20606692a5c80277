/* One rounding of a * b + c on every CPU, and sixteen floats side by side. */
#ifndef KVAD_KERNELS_PORTABLE_FMA_H
#define KVAD_KERNELS_PORTABLE_FMA_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "the bits of the kernels are defined for float arithmetic in float (docs/numerics.md)"
#endif

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__FP_FAST_FMAF)

static inline float fma_f32(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}

#else

/* Exact emulation. The product of two floats is exact in double; their sum with c is rounded to
 * odd, after which rounding to float cannot go wrong twice (Boldo and Melquiond, "Emulation of FMA
 * and correctly rounded sums: proved algorithms using rounding to odd", 2008). The error of the sum
 * is exact (Knuth's two-sum); it is NaN when the sum is not finite, and then nothing is changed. */
static inline float fma_f32(float a, float b, float c) {
    double product = (double)a * (double)b, addend = (double)c;
    double sum = product + addend;
    double virtual_addend = sum - product;
    double error = (product - (sum - virtual_addend)) + (addend - virtual_addend);
    int64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    int64_t is_inexact = (error > 0) | (error < 0);
    int64_t outward = (int64_t)((error > 0) == (sum > 0)) * 2 - 1; /* away from zero or towards */
    bits += is_inexact & ~bits & 1 ? outward : 0;
    memcpy(&sum, &bits, sizeof sum);
    return (float)sum;
}

#endif

/* Lanes run across outputs (or across tokens), never along a sum. The compiler keeps them in vector
 * registers: the loops below have a constant length and no aliasing. */
struct lanes {
    float v[16];
};

static inline struct lanes lanes_zero(void) {
    return (struct lanes){{0}};
}
static inline struct lanes lanes_load(const float *p) {
    struct lanes a;
    for (int i = 0; i < 16; i++)
        a.v[i] = p[i];
    return a;
}
static inline void lanes_store(float *p, struct lanes a) {
    for (int i = 0; i < 16; i++)
        p[i] = a.v[i];
}
static inline struct lanes lanes_add(struct lanes a, struct lanes b) {
    for (int i = 0; i < 16; i++)
        a.v[i] += b.v[i];
    return a;
}
/* a[i] * s + c[i] */
static inline struct lanes lanes_fma_scalar(struct lanes a, float s, struct lanes c) {
    for (int i = 0; i < 16; i++)
        c.v[i] = fma_f32(a.v[i], s, c.v[i]);
    return c;
}
/* The first n < 16 elements of p; the other lanes are +0. */
static inline struct lanes lanes_load_part(const float *p, size_t n) {
    struct lanes a = lanes_zero();
    memcpy(a.v, p, n * sizeof *p);
    return a;
}
static inline void lanes_store_part(float *p, struct lanes a, size_t n) {
    memcpy(p, a.v, n * sizeof *p);
}
/* Fold of a lane sum: 8, 4, 2, 1. */
static inline float lanes_fold(struct lanes a) {
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.v[i] += a.v[i + half];
    return a.v[0];
}

#endif
