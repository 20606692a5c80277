/* Widening of 16-bit weights by AVX2 and F16C. Same functions as the other simd/half_*.h. */
#ifndef KVAD_KERNELS_SIMD_HALF_AVX2_H
#define KVAD_KERNELS_SIMD_HALF_AVX2_H

#include "kernels/simd/f32_avx2.h"

#include <stdint.h>

/* VEC_WIDTH halves, exactly. */
static inline vec vec_load_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vec vec_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

#endif
