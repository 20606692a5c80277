/* Widening of 16-bit and 8-bit values, and narrowing to 16 bits, by AVX2 and F16C; the same
 * functions as other half_*.h. */
#ifndef KVAD_KERNELS_SIMD_HALF_AVX2_H
#define KVAD_KERNELS_SIMD_HALF_AVX2_H

#include "kernels/simd/f32_avx2.h"

#include <stdint.h>

/* VEC_WIDTH halves, exactly. */
static inline vec vec_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vec vec_load_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* VEC_WIDTH floats, rounded to nearest even; NaN stays NaN. */
static inline void vec_store_f16(uint16_t *p, vec a) {
    __m128i half = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i *)(void *)p, half);
}
static inline void vec_store_bf16(uint16_t *p, vec a) {
    __m256i bits = _mm256_castps_si256(a), high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    rounded = _mm256_srli_epi32(rounded, 16);
    rounded = _mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(vec_is_nan(a)));
    __m128i half =
        _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
    _mm_storeu_si128((__m128i *)(void *)p, half);
}

/* The 16 halves of a panel, exactly. bf16: the even ones, then the odd ones, which takes fewer
 * instructions than the order of the outputs. */
static inline void panel_load_bf16(vec out[2], const uint16_t *p) {
    __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)p);
    __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    out[1] = _mm256_castsi256_ps(_mm256_and_si256(both, high));
}
static inline void panel_load_f16(vec out[2], const uint16_t *p) {
    out[0] = vec_load_f16(p);
    out[1] = vec_load_f16(p + 8);
}
/* Sums in the order of panel_load_bf16() into that of the outputs. */
static inline void panel_order_bf16(vec sum[2]) {
    vec low = _mm256_unpacklo_ps(sum[0], sum[1]), high = _mm256_unpackhi_ps(sum[0], sum[1]);
    sum[0] = _mm256_permute2f128_ps(low, high, 0x20);
    sum[1] = _mm256_permute2f128_ps(low, high, 0x31);
}

/* VEC_WIDTH signed bytes, exactly. */
static inline vec vec_load_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

#endif
