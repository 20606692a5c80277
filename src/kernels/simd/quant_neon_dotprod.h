/* Integer dot products of Advanced SIMD with FEAT_DotProd for q8 and q4. Same names as the other
 * simd/quant_*.h.
 *
 * sdot adds four products of signed bytes in 32 bits. q4 stays as it is stored, larger by 8; its
 * sum begins with what that adds, negated. */
#ifndef KVAD_KERNELS_SIMD_QUANT_NEON_DOTPROD_H
#define KVAD_KERNELS_SIMD_QUANT_NEON_DOTPROD_H

#include "kernels/simd/qvec_neon.h"

#define QUANT_UNROLL KVAD_UNROLL

static inline struct q8_sum q8_add(struct q8_sum sum, struct q8_weights w, qvec x) {
    return (struct q8_sum){vdotq_s32(sum.total, w.quant, x)};
}

struct q4_sum {
    int32x4_t total;
};
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
