/* Quantising a group of activations by Advanced SIMD. Same functions as the other
 * simd/quantise_*.h. */
#ifndef KVAD_KERNELS_SIMD_QUANTISE_NEON_H
#define KVAD_KERNELS_SIMD_QUANTISE_NEON_H

#include "kernels/simd/f32_neon.h"

#include <stdint.h>

/* A group of 32 floats. */
struct quantise_input {
    float32x4_t v[8];
};

static inline struct quantise_input quantise_load(const float *x) {
    struct quantise_input group;
    for (int i = 0; i < 8; i++)
        group.v[i] = vld1q_f32(x + 4 * i);
    return group;
}

/* The bits of the largest magnitude. As integers they are ordered like the floats, infinity and NaN
 * above all others. */
static inline uint32_t quantise_magnitude(const struct quantise_input *x) {
    uint32x4_t max = vdupq_n_u32(0);
    for (int i = 0; i < 8; i++)
        max = vmaxq_u32(max, vreinterpretq_u32_f32(vabsq_f32(x->v[i])));
    return vmaxvq_u32(max);
}

/* q[i] = x[i] / scale, rounded to nearest even; returns the sum. No quotient exceeds 127. */
static inline int32_t quantise_store(int8_t *q, const struct quantise_input *x, float scale) {
    int32_t sum = 0;
    for (int i = 0; i < 8; i += 4) {
        int16x4_t whole[4];
        for (int j = 0; j < 4; j++)
            whole[j] = vmovn_s32(vcvtnq_s32_f32(vdivq_f32(x->v[i + j], vdupq_n_f32(scale))));
        int8x16_t bytes = vcombine_s8(vmovn_s16(vcombine_s16(whole[0], whole[1])),
                                      vmovn_s16(vcombine_s16(whole[2], whole[3])));
        vst1q_s8(q + 4 * i, bytes);
        sum += vaddlvq_s8(bytes);
    }
    return sum;
}

#endif
