/* Integer dot products of AVX-512 VNNI for q8 and q4. Same names as the other simd/quant_*.h.
 *
 * vpdpbusd adds four products of unsigned by signed bytes in 32 bits. The weights stay as they are
 * stored, larger by 128 or 8; a sum begins with what that adds, negated. */
#ifndef KVAD_KERNELS_SIMD_QUANT_AVX512_VNNI_H
#define KVAD_KERNELS_SIMD_QUANT_AVX512_VNNI_H

#include "kernels/simd/qvec_avx512.h"

/* As a loop, GCC copies every sum twice per turn. */
#define QUANT_UNROLL KVAD_UNROLL

struct q8_weights {
    qvec stored;
};
struct q8_sum {
    qvec total; /* 32 bits per output */
};
static inline struct q8_weights q8_load(const unsigned char *w) {
    return (struct q8_weights){_mm512_load_si512(w)};
}
static inline struct q8_sum q8_begin(int32_t offset) {
    return (struct q8_sum){_mm512_slli_epi32(_mm512_set1_epi32(offset), 4)};
}
static inline struct q8_sum q8_add(struct q8_sum sum, struct q8_weights w, qvec x) {
    return (struct q8_sum){_mm512_dpbusd_epi32(sum.total, w.stored, x)};
}
static inline vec q8_end(struct q8_sum sum, int32_t offset) {
    (void)offset;
    return _mm512_cvtepi32_ps(sum.total);
}

struct q4_sum {
    qvec total; /* 32 bits per output */
};
static inline struct q4_sum q4_begin(int32_t offset) {
    return (struct q4_sum){_mm512_set1_epi32(offset)};
}
static inline struct q4_sum q4_add(struct q4_sum sum, struct q4_weights w, qvec low, qvec high) {
    qvec total = _mm512_dpbusd_epi32(sum.total, w.low, low);
    return (struct q4_sum){_mm512_dpbusd_epi32(total, w.high, high)};
}
static inline vec q4_end(struct q4_sum sum, int32_t offset) {
    (void)offset;
    return _mm512_cvtepi32_ps(sum.total);
}

#endif
