/* Integer dot products of AVX-512 BW for q8 and q4. Same names as the other simd/quant_*.h.
 *
 * maddubs multiplies unsigned by signed bytes and adds pairs in 16 bits, with saturation. It gets
 * four bits of a weight at a time: the 16 products of a group that meet in 16 bits are at most
 * 16 * 15 * 127 = 30480. Both types stay as they are stored, larger by 128 or 8. */
#ifndef KVAD_KERNELS_SIMD_QUANT_AVX512_H
#define KVAD_KERNELS_SIMD_QUANT_AVX512_H

#include "kernels/simd/quant_widen.h"
#include "kernels/simd/qvec_avx512.h"
#include "kernels/weights.h"

/* The loop over a group stays a loop: unrolled, GCC reorders its integer sums and runs out of
 * registers. */
#define QUANT_UNROLL KVAD_NO_UNROLL

struct q8_weights {
    qvec low, high; /* quant + 128 = low + 16 * high */
};
struct q8_sum {
    qvec low, high; /* two sums of 16 bits per output each */
};
static inline struct q8_weights q8_load(const unsigned char *w) {
    struct q4_weights halves = q4_load(w);
    return (struct q8_weights){halves.low, halves.high};
}
static inline struct q8_sum q8_begin(int32_t offset) {
    (void)offset; /* does not fit in 16 bits: added at the end */
    return (struct q8_sum){_mm512_setzero_si512(), _mm512_setzero_si512()};
}
static inline struct q8_sum q8_add(struct q8_sum sum, struct q8_weights w, qvec x) {
    return (struct q8_sum){_mm512_add_epi16(sum.low, _mm512_maddubs_epi16(w.low, x)),
                           _mm512_add_epi16(sum.high, _mm512_maddubs_epi16(w.high, x))};
}
static inline vec q8_end(struct q8_sum sum, int32_t offset) {
    qvec low = _mm512_madd_epi16(sum.low, _mm512_set1_epi16(1));
    qvec high = _mm512_madd_epi16(sum.high, _mm512_set1_epi16(16));
    qvec total = _mm512_add_epi32(low, _mm512_slli_epi32(_mm512_set1_epi32(offset), 4));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(total, high));
}

/* q8 for many rows: as 16 bits, the first and third input of four in one vector, the others in
 * another, of which vpmaddwd adds pairs in 32 bits: one sum for an output, where halves of bytes
 * need two. The inputs are widened once for all panels; the weights stay larger by 128. */
#define QUANT_WIDENS
struct q8_wide {
    qvec even, odd;
};
static inline struct q8_wide q8_wide_load(const unsigned char *w) {
    qvec stored = _mm512_load_si512(w);
    return (struct q8_wide){_mm512_and_si512(stored, _mm512_set1_epi16(255)),
                            _mm512_srli_epi16(stored, 8)};
}
struct q8_wide_sum {
    qvec total; /* 32 bits per output */
};
static inline struct q8_wide_sum q8_wide_begin(int32_t offset) {
    return (struct q8_wide_sum){_mm512_slli_epi32(_mm512_set1_epi32(offset), 4)};
}
static inline struct q8_wide_sum q8_wide_add(struct q8_wide_sum sum, qvec w, qvec x) {
    sum.total = _mm512_add_epi32(sum.total, _mm512_madd_epi16(w, x));
    return sum;
}
static inline vec q8_wide_end(struct q8_wide_sum sum, int32_t offset) {
    (void)offset;
    return _mm512_cvtepi32_ps(sum.total);
}

struct q4_sum {
    qvec pairs; /* two sums of 16 bits per output */
};
static inline struct q4_sum q4_begin(int32_t offset) {
    (void)offset;
    return (struct q4_sum){_mm512_setzero_si512()};
}
static inline struct q4_sum q4_add(struct q4_sum sum, struct q4_weights w, qvec low, qvec high) {
    qvec pairs = _mm512_add_epi16(sum.pairs, _mm512_maddubs_epi16(w.low, low));
    return (struct q4_sum){_mm512_add_epi16(pairs, _mm512_maddubs_epi16(w.high, high))};
}
static inline vec q4_end(struct q4_sum sum, int32_t offset) {
    qvec total = _mm512_madd_epi16(sum.pairs, _mm512_set1_epi16(1));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(total, _mm512_set1_epi32(offset)));
}

#endif
