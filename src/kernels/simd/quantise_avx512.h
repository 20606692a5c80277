/* Quantising a group of activations by AVX-512. Same functions as the other simd/quantise_*.h. */
#ifndef KVAD_KERNELS_SIMD_QUANTISE_AVX512_H
#define KVAD_KERNELS_SIMD_QUANTISE_AVX512_H

#include "kernels/simd/f32_avx512.h"

#include <stdint.h>

/* A group of 32 floats. */
struct quantise_input {
    __m512 v[2];
};

static inline struct quantise_input quantise_load(const float *x) {
    return (struct quantise_input){{vec_load(x), vec_load(x + 16)}};
}

/* The bits of the largest magnitude. As integers they are ordered like the floats, infinity and NaN
 * above all others. */
static inline uint32_t quantise_magnitude(const struct quantise_input *x) {
    __m512i a = _mm512_castps_si512(vec_abs(x->v[0])), b = _mm512_castps_si512(vec_abs(x->v[1]));
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(a, b));
}

/* q[i] = x[i] / scale, rounded to nearest even; returns the sum. No quotient exceeds 127. */
static inline int32_t quantise_store(int8_t *q, const struct quantise_input *x, float scale) {
    __m512i whole[2];
    for (int i = 0; i < 2; i++) {
        whole[i] = _mm512_cvtps_epi32(_mm512_div_ps(x->v[i], _mm512_set1_ps(scale)));
        _mm_storeu_si128((__m128i *)(void *)(q + 16 * i), _mm512_cvtepi32_epi8(whole[i]));
    }
    return _mm512_reduce_add_epi32(_mm512_add_epi32(whole[0], whole[1]));
}

#endif
