/* Integer dot products of Advanced SIMD with FEAT_DotProd for q8 and q4. Same names as the other
 * simd/quant_*.h.
 *
 * sdot adds four products of signed bytes in 32 bits. q4 stays as it is stored, larger by 8; its
 * sum begins with what that adds, negated. */
#ifndef KVAD_KERNELS_SIMD_QUANT_NEON_DOTPROD_H
#define KVAD_KERNELS_SIMD_QUANT_NEON_DOTPROD_H

#include "kernels/simd/half_neon.h"

#include <string.h>

#define QUANT_UNROLL KVAD_UNROLL

typedef int8x16_t qvec; /* bytes: four inputs of each of VEC_WIDTH outputs */

/* Four quants of a row, the same for every output. */
static inline qvec qvec_inputs(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

struct q8_weights {
    qvec quant;
};
struct q8_sum {
    int32x4_t total;
};
static inline struct q8_weights q8_load(const unsigned char *w) {
    return (struct q8_weights){vreinterpretq_s8_u8(veorq_u8(vld1q_u8(w), vdupq_n_u8(128)))};
}
static inline struct q8_sum q8_begin(int32_t offset) {
    (void)offset; /* the quants are signed again */
    return (struct q8_sum){vdupq_n_s32(0)};
}
static inline struct q8_sum q8_add(struct q8_sum sum, struct q8_weights w, qvec x) {
    return (struct q8_sum){vdotq_s32(sum.total, w.quant, x)};
}
static inline vec q8_end(struct q8_sum sum, int32_t offset) {
    (void)offset;
    return vcvtq_f32_s32(sum.total);
}

struct q4_weights {
    qvec low, high; /* quant + 8 */
};
struct q4_sum {
    int32x4_t total;
};
static inline struct q4_weights q4_load(const unsigned char *w) {
    uint8x16_t both = vld1q_u8(w);
    return (struct q4_weights){vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))),
                               vreinterpretq_s8_u8(vshrq_n_u8(both, 4))};
}
static inline struct q4_sum q4_begin(int32_t offset) {
    return (struct q4_sum){vdupq_n_s32(offset)};
}
static inline struct q4_sum q4_add(struct q4_sum sum, struct q4_weights w, qvec low, qvec high) {
    return (struct q4_sum){vdotq_s32(vdotq_s32(sum.total, w.low, low), w.high, high)};
}
static inline vec q4_end(struct q4_sum sum, int32_t offset) {
    (void)offset;
    return vcvtq_f32_s32(sum.total);
}

#endif
