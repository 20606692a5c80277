/* Widening of 16-bit and 8-bit values by AVX-512. Same functions as the other simd/half_*.h. */
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
