/* Inputs of q8 for many rows, widened to 16 bits: what AVX2 and AVX-512 have in common. */
#ifndef KVAD_KERNELS_SIMD_QUANT_WIDEN_H
#define KVAD_KERNELS_SIMD_QUANT_WIDEN_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/weights.h"

/* A group of quants to 64 bytes: the first and third of each four, then the others. */
static inline void q8_widen(int8_t *out, const int8_t *x) {
    __m256i quant = _mm256_loadu_si256((const __m256i *)(const void *)x);
    __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(quant, 8), 8);
    _mm256_storeu_si256((__m256i *)(void *)out, even);
    _mm256_storeu_si256((__m256i *)(void *)(out + KVAD_GROUP), _mm256_srai_epi16(quant, 8));
}

#endif
