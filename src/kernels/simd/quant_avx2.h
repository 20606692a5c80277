/* Integer dot products of AVX2 for q8 and q4. Same names as the other simd/quant_*.h.
 *
 * maddubs multiplies unsigned by signed bytes and adds pairs in 16 bits, with saturation. q8 gives
 * it |w| <= 128 and x with the sign of w: a pair is at most 2 * 128 * 127 = 32512. q4 gives it
 * w + 8 <= 15: the 16 products of a group that meet in 16 bits are at most 16 * 15 * 127 = 30480.
 * (The other way round, |x| and w with the sign of x, fails at w = -128.) */
#ifndef KVAD_KERNELS_SIMD_QUANT_AVX2_H
#define KVAD_KERNELS_SIMD_QUANT_AVX2_H

#include "kernels/simd/half_avx2.h"
#include "kernels/simd/quant_widen.h"
#include "kernels/weights.h"

#include <string.h>

/* The loop over a group of q8 stays a loop: unrolled, GCC reorders its integer sums and runs out of
 * registers. That of q4 keeps their order by quant_in_order(). */
#define QUANT_UNROLL    KVAD_NO_UNROLL
#define QUANT_UNROLL_Q4 KVAD_UNROLL

typedef __m256i qvec; /* bytes: four inputs of each of VEC_WIDTH outputs */

/* The sum up to here is computed here: GCC would multiply for all rows first and run out of
 * registers. */
static inline qvec quant_in_order(qvec sum) {
    __asm__ volatile("" : "+x"(sum));
    return sum;
}

/* Four quants of a row, the same for every output. */
static inline qvec qvec_inputs(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

struct q8_weights {
    qvec magnitude, sign;
};
struct q8_sum {
    qvec total; /* 32 bits per output */
};
static inline struct q8_weights q8_load(const unsigned char *w) {
    qvec stored = _mm256_load_si256((const __m256i *)(const void *)w);
    qvec quant = _mm256_xor_si256(stored, _mm256_set1_epi8((char)-128));
    return (struct q8_weights){_mm256_abs_epi8(quant), quant};
}
static inline struct q8_sum q8_begin(int32_t offset) {
    (void)offset; /* the quants are signed again */
    return (struct q8_sum){_mm256_setzero_si256()};
}
static inline struct q8_sum q8_add(struct q8_sum sum, struct q8_weights w, qvec x) {
    qvec pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.sign));
    qvec fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    return (struct q8_sum){_mm256_add_epi32(sum.total, fours)};
}
static inline vec q8_end(struct q8_sum sum, int32_t offset) {
    (void)offset;
    return _mm256_cvtepi32_ps(sum.total);
}

/* q8 for many rows: as 16 bits, the first and third input of four in one vector, the others in
 * another, of which vpmaddwd adds pairs in 32 bits. That is two multiplications for four inputs;
 * vpsignb (which takes a multiplier of EPYC 9004), maddubs and vpmaddwd are three. The inputs are
 * widened once for all panels; the weights stay larger by 128. */
#define QUANT_WIDENS
struct q8_wide {
    qvec even, odd;
};
static inline struct q8_wide q8_wide_load(const unsigned char *w) {
    qvec stored = _mm256_load_si256((const __m256i *)(const void *)w);
    return (struct q8_wide){_mm256_and_si256(stored, _mm256_set1_epi16(255)),
                            _mm256_srli_epi16(stored, 8)};
}
struct q8_wide_sum {
    qvec total; /* 32 bits per output */
};
static inline struct q8_wide_sum q8_wide_begin(int32_t offset) {
    return (struct q8_wide_sum){_mm256_slli_epi32(_mm256_set1_epi32(offset), 4)};
}
static inline struct q8_wide_sum q8_wide_add(struct q8_wide_sum sum, qvec w, qvec x) {
    sum.total = quant_in_order(_mm256_add_epi32(sum.total, _mm256_madd_epi16(w, x)));
    return sum;
}
static inline vec q8_wide_end(struct q8_wide_sum sum, int32_t offset) {
    (void)offset;
    return _mm256_cvtepi32_ps(sum.total);
}

struct q4_weights {
    qvec low, high; /* quant + 8 */
};
struct q4_sum {
    qvec pairs; /* two sums of 16 bits per output */
};
static inline struct q4_weights q4_load(const unsigned char *w) {
    qvec both = _mm256_load_si256((const __m256i *)(const void *)w), mask = _mm256_set1_epi8(15);
    return (struct q4_weights){_mm256_and_si256(both, mask),
                               _mm256_and_si256(_mm256_srli_epi16(both, 4), mask)};
}
static inline struct q4_sum q4_begin(int32_t offset) {
    (void)offset; /* does not fit in 16 bits: added at the end */
    return (struct q4_sum){_mm256_setzero_si256()};
}
static inline struct q4_sum q4_add(struct q4_sum sum, struct q4_weights w, qvec low, qvec high) {
    sum.pairs = quant_in_order(_mm256_add_epi16(sum.pairs, _mm256_maddubs_epi16(w.low, low)));
    sum.pairs = quant_in_order(_mm256_add_epi16(sum.pairs, _mm256_maddubs_epi16(w.high, high)));
    return sum;
}
static inline vec q4_end(struct q4_sum sum, int32_t offset) {
    qvec total = _mm256_madd_epi16(sum.pairs, _mm256_set1_epi16(1));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(total, _mm256_set1_epi32(offset)));
}

#endif
