/* Integer dot products of Advanced SIMD for q8 and q4. Same names as the other simd/quant_*.h.
 *
 * Products are 16 bits wide. Two of q8 fit in their sum: 2 * 128 * 127 = 32512. In q4, which stays
 * as it is stored (larger by 8), all 8 of a group that meet: 8 * 15 * 127 = 15240. */
#ifndef KVAD_KERNELS_SIMD_QUANT_NEON_H
#define KVAD_KERNELS_SIMD_QUANT_NEON_H

#include "kernels/simd/qvec_neon.h"

/* The loop over a group stays a loop: unrolled, GCC reorders its integer sums and runs out of
 * registers. */
#define QUANT_UNROLL KVAD_NO_UNROLL

static inline struct q8_sum q8_add(struct q8_sum sum, struct q8_weights w, qvec x) {
    int16x8_t low = vmull_s8(vget_low_s8(w.quant), vget_low_s8(x)),
              high = vmull_high_s8(w.quant, x);
    return (struct q8_sum){vpadalq_s16(sum.total, vpaddq_s16(low, high))};
}

struct q4_sum {
    int16x8_t low, high; /* four sums per output, of the first and the last two outputs */
};
static inline struct q4_sum q4_begin(int32_t offset) {
    (void)offset; /* does not fit in 16 bits: added at the end */
    return (struct q4_sum){vdupq_n_s16(0), vdupq_n_s16(0)};
}
static inline struct q4_sum q4_add(struct q4_sum sum, struct q4_weights w, qvec low, qvec high) {
    sum.low = vmlal_s8(sum.low, vget_low_s8(w.low), vget_low_s8(low));
    sum.high = vmlal_high_s8(sum.high, w.low, low);
    sum.low = vmlal_s8(sum.low, vget_low_s8(w.high), vget_low_s8(high));
    sum.high = vmlal_high_s8(sum.high, w.high, high);
    return sum;
}
static inline vec q4_end(struct q4_sum sum, int32_t offset) {
    int32x4_t total = vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high));
    return vcvtq_f32_s32(vaddq_s32(total, vdupq_n_s32(offset)));
}

#endif
