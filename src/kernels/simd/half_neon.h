/* Widening of 16-bit and 8-bit values, and narrowing to 16 bits, by Advanced SIMD; the same
 * functions as other half_*.h. */
#ifndef KVAD_KERNELS_SIMD_HALF_NEON_H
#define KVAD_KERNELS_SIMD_HALF_NEON_H

#include "kernels/simd/f32_neon.h"

#include <stdint.h>
#include <string.h>

/* VEC_WIDTH halves, exactly. */
static inline vec vec_load_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline vec vec_load_bf16(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

/* VEC_WIDTH floats, rounded to nearest even; NaN stays NaN. */
static inline void vec_store_f16(uint16_t *p, vec a) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}
static inline void vec_store_bf16(uint16_t *p, vec a) {
    uint32x4_t bits = vreinterpretq_u32_f32(a), high = vshrq_n_u32(bits, 16);
    uint32x4_t odd = vandq_u32(high, vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    rounded = vshrq_n_u32(rounded, 16);
    rounded = vbslq_u32(vec_is_nan(a), vorrq_u32(high, vdupq_n_u32(0x40)), rounded);
    vst1_u16(p, vmovn_u32(rounded));
}

/* The 16 halves of a panel, exactly. */
static inline void panel_load_bf16(vec out[4], const uint16_t *p) {
    for (int i = 0; i < 4; i++)
        out[i] = vec_load_bf16(p + 4 * i);
}
static inline void panel_load_f16(vec out[4], const uint16_t *p) {
    for (int i = 0; i < 4; i++)
        out[i] = vec_load_f16(p + 4 * i);
}
/* Sums in the order of panel_load_bf16() into that of the outputs. */
static inline void panel_order_bf16(vec sum[4]) {
    (void)sum;
}

/* VEC_WIDTH signed bytes, exactly; no byte beyond them is touched. */
static inline vec vec_load_i8(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

#endif
