/* Quantising eight groups of activations at once by AVX2: for every x86 level, since AVX-512 does
 * this no faster on the CPUs that were measured. */
#ifndef KVAD_KERNELS_SIMD_QUANTISE_BLOCK_AVX2_H
#define KVAD_KERNELS_SIMD_QUANTISE_BLOCK_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "base/compiler.h"
#include "kernels/constants.h"
#include "kernels/kernels.h"

enum { QUANTISE_BLOCK = 8 };

/* One step of reducing eight vectors to the eight results in order: both halves of what op joins
 * come from a and b. */
static inline __m256i quantise_join(__m256i a, __m256i b, bool is_sum) {
    return is_sum ? _mm256_add_epi32(a, b) : _mm256_max_epi32(a, b);
}

/* Lane g of the result is the sum, or the largest, of the lanes of v[g]. */
static KVAD_ALWAYS_INLINE __m256i quantise_reduce(const __m256i *v, const bool is_sum) {
    __m256i pair[4], four[2];
    KVAD_UNROLL
    for (int i = 0; i < 4; i++)
        pair[i] = quantise_join(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]), is_sum);
    KVAD_UNROLL
    for (int i = 0; i < 2; i++)
        four[i] = quantise_join(_mm256_unpacklo_epi64(pair[2 * i], pair[2 * i + 1]),
                                _mm256_unpackhi_epi64(pair[2 * i], pair[2 * i + 1]), is_sum);
    return quantise_join(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                         _mm256_permute2x128_si256(four[0], four[1], 0x31), is_sum);
}

/* The bits of the largest magnitude in each lane of a group; as integers they are ordered like the
 * floats. */
static KVAD_ALWAYS_INLINE __m256i quantise_lanes(const float *x) {
    __m256i max = _mm256_setzero_si256(), mask = _mm256_set1_epi32(0x7fffffff);
    KVAD_UNROLL
    for (int i = 0; i < 4; i++) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(x + 8 * i));
        max = _mm256_max_epi32(max, _mm256_and_si256(bits, mask));
    }
    return max;
}

/* q = x / scale rounded to nearest even; eight parts of -8 times the sum. The quotient is
 * x * (1 / scale), corrected once by its exact remainder: Markstein, IBM J. Res. Dev. 34(1), 1990.
 * That it rounds to the same integer as the division has been tried for every significand of a
 * scale, and all x beside the middle of two integers. */
static KVAD_ALWAYS_INLINE __m256i quantise_group_by(int8_t *q, const float *x, float scale,
                                                    float inverse) {
    __m256 s = _mm256_set1_ps(scale), r = _mm256_set1_ps(inverse);
    __m256i whole[4];
    KVAD_UNROLL
    for (int i = 0; i < 4; i++) {
        __m256 value = _mm256_loadu_ps(x + 8 * i), quotient = _mm256_mul_ps(value, r);
        quotient = _mm256_fmadd_ps(_mm256_fnmadd_ps(quotient, s, value), r, quotient);
        whole[i] = _mm256_cvtps_epi32(quotient);
    }
    /* Packing works within halves: afterwards the fours lie in the order 0 2 4 6 1 3 5 7. */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]),
                                       _mm256_packs_epi32(whole[2], whole[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes),
                             _mm256_set1_epi16(-8));
}

/* Eight groups, unless one has a scale below 2^-100 (whose remainders may be subnormal), 0 or NaN:
 * then false, and nothing is done. */
static inline bool quantise_block(int8_t *q, float *scales, int32_t *offsets, const float *x) {
    __m256i lanes[QUANTISE_BLOCK];
    for (int g = 0; g < QUANTISE_BLOCK; g++)
        lanes[g] = quantise_lanes(x + g * KVAD_GROUP);
    __m256 max = _mm256_castsi256_ps(quantise_reduce(lanes, false));
    __m256 s = _mm256_div_ps(max, _mm256_set1_ps(127.0f));
    /* The largest float over 127: an infinity or NaN is beyond. */
    __m256 is_good = _mm256_and_ps(_mm256_cmp_ps(s, _mm256_set1_ps(0x1p-100f), _CMP_GE_OQ),
                                   _mm256_cmp_ps(s, _mm256_set1_ps(0x1p122f), _CMP_LT_OQ));
    if (_mm256_movemask_ps(is_good) != 0xff) return false;
    float inverses[QUANTISE_BLOCK];
    _mm256_storeu_ps(scales, s);
    _mm256_storeu_ps(inverses, _mm256_div_ps(_mm256_set1_ps(1.0f), s));
    for (int g = 0; g < QUANTISE_BLOCK; g++)
        lanes[g] =
            quantise_group_by(q + g * KVAD_GROUP, x + g * KVAD_GROUP, scales[g], inverses[g]);
    _mm256_storeu_si256((__m256i *)(void *)offsets, quantise_reduce(lanes, true));
    return true;
}

#endif
