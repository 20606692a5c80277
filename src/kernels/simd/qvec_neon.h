/* What the integer dot products of Advanced SIMD have in common: quants in registers. q8 is signed
 * again as it is loaded; q4 stays as it is stored, larger by 8. */
#ifndef KVAD_KERNELS_SIMD_QVEC_NEON_H
#define KVAD_KERNELS_SIMD_QVEC_NEON_H

#include "kernels/simd/half_neon.h"

#include <string.h>

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
static inline vec q8_end(struct q8_sum sum, int32_t offset) {
    (void)offset;
    return vcvtq_f32_s32(sum.total);
}

struct q4_weights {
    qvec low, high; /* quant + 8 */
};
static inline struct q4_weights q4_load(const unsigned char *w) {
    uint8x16_t both = vld1q_u8(w);
    return (struct q4_weights){vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))),
                               vreinterpretq_s8_u8(vshrq_n_u8(both, 4))};
}

#endif
