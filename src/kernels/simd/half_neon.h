/* Widening of 16-bit weights by Advanced SIMD. Same functions as the other simd/half_*.h. */
#ifndef KVAD_KERNELS_SIMD_HALF_NEON_H
#define KVAD_KERNELS_SIMD_HALF_NEON_H

#include "kernels/simd/f32_neon.h"

#include <stdint.h>

/* VEC_WIDTH halves, exactly. */
static inline vec vec_load_bf16(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline vec vec_load_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

#endif
