/* Quantising a group of activations by AVX2. Same functions as the other simd/quantise_*.h. */
#ifndef KVAD_KERNELS_SIMD_QUANTISE_AVX2_H
#define KVAD_KERNELS_SIMD_QUANTISE_AVX2_H

#include "kernels/simd/f32_avx2.h"

#include <stdint.h>

/* A group of 32 floats. */
struct quantise_input {
    __m256 v[4];
};

static inline struct quantise_input quantise_load(const float *x) {
    return (struct quantise_input){
        {vec_load(x), vec_load(x + 8), vec_load(x + 16), vec_load(x + 24)}};
}

/* The bits of the largest magnitude. As integers they are ordered like the floats, infinity and NaN
 * above all others. */
static inline uint32_t quantise_magnitude(const struct quantise_input *x) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i m[4];
    for (int i = 0; i < 4; i++)
        m[i] = _mm256_and_si256(_mm256_castps_si256(x->v[i]), mask);
    __m256i max = _mm256_max_epi32(_mm256_max_epi32(m[0], m[1]), _mm256_max_epi32(m[2], m[3]));
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

/* q[i] = x[i] / scale, rounded to nearest even; returns the sum. No quotient exceeds 127. */
static inline int32_t quantise_store(int8_t *q, const struct quantise_input *x, float scale) {
    __m256i whole[4];
    for (int i = 0; i < 4; i++)
        whole[i] = _mm256_cvtps_epi32(_mm256_div_ps(x->v[i], _mm256_set1_ps(scale)));
    /* Packing works within halves: afterwards the fours lie in the order 0 2 4 6 1 3 5 7. */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]),
                                       _mm256_packs_epi32(whole[2], whole[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half);
}

#endif
