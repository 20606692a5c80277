/* The functions of one float that activations and attention are made of, without branches, so that
 * loops over them become vector code. Definitions, derivations and accuracy: docs/numerics.md. */
#ifndef KVAD_KERNELS_PORTABLE_FUNCTIONS_H
#define KVAD_KERNELS_PORTABLE_FUNCTIONS_H

#include <math.h>

#include "base/bytes.h"
#include "kernels/constants.h"
#include "kernels/portable/fma.h"

static inline float abs_f32(float x) {
    return kvad_float_from_bits(kvad_bits_from_float(x) & 0x7fffffffu);
}
static inline float copysign_f32(float magnitude, float sign) {
    return kvad_float_from_bits((kvad_bits_from_float(magnitude) & 0x7fffffffu) |
                                (kvad_bits_from_float(sign) & 0x80000000u));
}

/* e^x = 2^n e^r with |r| <= ln 2 / 2. The sum with 1.5 * 2^23 rounds x / ln 2 to the integer n and
 * leaves n in the low bits of the float, from where it is added to the exponent. */
static inline float exp_f32(float x) {
    float shifted = fma_f32(x, EXP_LOG2E, EXP_SHIFT);
    float n = shifted - EXP_SHIFT;
    float r = fma_f32(n, -EXP_LN2_LOW, fma_f32(n, -EXP_LN2_HIGH, x));
    float p = fma_f32(EXP_C7, r, EXP_C6);
    p = fma_f32(p, r, EXP_C5);
    p = fma_f32(p, r, EXP_C4);
    p = fma_f32(p, r, EXP_C3);
    p = fma_f32(p, r, EXP_C2);
    float significand = 1.0f + fma_f32(r * r, p, r);
    float y = kvad_float_from_bits(kvad_bits_from_float(significand) +
                                   (kvad_bits_from_float(shifted) << 23));
    y = x < EXP_MIN ? 0.0f : y;
    y = x > EXP_MAX ? INFINITY : y;
    return x != x ? x : y;
}

/* x * sigmoid(z) where z has the sign of x; -0 where e^-z overflows. */
static inline float gated_f32(float x, float z) {
    float divisor = 1.0f + exp_f32(-z);
    return divisor == INFINITY ? -0.0f : x / divisor;
}

static inline float sigmoid_f32(float x) {
    return 1.0f / (1.0f + exp_f32(-x));
}
static inline float silu_f32(float x) {
    return gated_f32(x, x);
}
static inline float quick_gelu_f32(float x) {
    return gated_f32(x, x * QUICK_GELU_SCALE);
}

/* 0.5 (1 + tanh u) = sigmoid(2 u): no cancellation for negative x. */
static inline float gelu_tanh_f32(float x) {
    return gated_f32(x, x * fma_f32(x * x, GELU_TANH_CUBE, GELU_TANH_SCALE));
}

/* x Phi(x). Phi(x) = 1/2 + x P(x^2) for |x| < 1; outside, Phi(-a) = e^(-a^2/2) T(t) with
 * t = (a - 3) / (a + 3), where the rounding error of a^2 is carried into the exponential. */
static inline float gelu_erf_f32(float x) {
    float a = abs_f32(x), square = x * x;
    float p = fma_f32(PHI_C5, square, PHI_C4);
    p = fma_f32(p, square, PHI_C3);
    p = fma_f32(p, square, PHI_C2);
    p = fma_f32(p, square, PHI_C1);
    p = fma_f32(p, square, PHI_C0);
    float inner = x * fma_f32(p, x, 0.5f);

    a = a > PHI_MAX ? PHI_MAX : a;
    float a2 = a * a, a2_error = fma_f32(a, a, -a2);
    float e = exp_f32(-0.5f * a2);
    e = fma_f32(e, -0.5f * a2_error, e);
    float t = (a - 3.0f) / (a + 3.0f);
    float q = fma_f32(PHI_T8, t, PHI_T7);
    q = fma_f32(q, t, PHI_T6);
    q = fma_f32(q, t, PHI_T5);
    q = fma_f32(q, t, PHI_T4);
    q = fma_f32(q, t, PHI_T3);
    q = fma_f32(q, t, PHI_T2);
    q = fma_f32(q, t, PHI_T1);
    q = fma_f32(q, t, PHI_T0);
    float tail = e * q;
    float outer = x < 0.0f ? -(a * tail) : x * (1.0f - tail);
    return a < 1.0f ? inner : outer;
}

/* x + x^3 P(x^2) for |x| < 0.625, else 1 - 2 / (e^2|x| + 1). */
static inline float tanh_f32(float x) {
    float a = abs_f32(x), square = x * x;
    float p = fma_f32(TANH_C4, square, TANH_C3);
    p = fma_f32(p, square, TANH_C2);
    p = fma_f32(p, square, TANH_C1);
    p = fma_f32(p, square, TANH_C0);
    float inner = fma_f32(a * square, p, a);
    float outer = 1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f);
    return copysign_f32(a < TANH_SPLIT ? inner : outer, x);
}

static inline float relu_f32(float x) {
    return x < 0.0f ? 0.0f : x;
}

#endif
