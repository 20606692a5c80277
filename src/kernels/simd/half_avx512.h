/* Widening of 16-bit and 8-bit values, and narrowing to 16 bits, by AVX-512. Same functions as the
 * other simd/half_*.h. */
#ifndef KVAD_KERNELS_SIMD_HALF_AVX512_H
#define KVAD_KERNELS_SIMD_HALF_AVX512_H

#include "kernels/simd/f32_avx512.h"

#include <stdint.h>

/* VEC_WIDTH halves, exactly. */
static inline vec vec_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline vec vec_load_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* VEC_WIDTH floats, rounded to nearest even; NaN stays NaN. */
static inline void vec_store_f16(uint16_t *p, vec a) {
    __m256i half = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)(void *)p, half);
}
static inline void vec_store_bf16(uint16_t *p, vec a) {
    __m512i bits = _mm512_castps_si512(a), high = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    rounded = _mm512_srli_epi32(rounded, 16);
    rounded = _mm512_mask_or_epi32(rounded, vec_is_nan(a), high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(rounded));
}

/* The 16 halves of a panel, exactly. */
static inline void panel_load_bf16(vec out[1], const uint16_t *p) {
    out[0] = vec_load_bf16(p);
}
static inline void panel_load_f16(vec out[1], const uint16_t *p) {
    out[0] = vec_load_f16(p);
}
/* Sums in the order of panel_load_bf16() into that of the outputs. */
static inline void panel_order_bf16(vec sum[1]) {
    (void)sum;
}

/* VEC_WIDTH signed bytes, exactly. */
static inline vec vec_load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

#endif
