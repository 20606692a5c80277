/* defines ceiling_neon */
#include <arm_neon.h>
#include <string.h>

#include "lab/ceiling_ops.h"

typedef uint64x2_t block;
static inline block block_zero(void) {
    return vdupq_n_u64(0);
}
static inline block block_load(const unsigned char *p) {
    return vreinterpretq_u64_u8(vld1q_u8(p));
}
static inline block block_xor(block a, block b) {
    return veorq_u64(a, b);
}
static inline uint64_t block_fold(block a) {
    return vgetq_lane_u64(a, 0) ^ vgetq_lane_u64(a, 1);
}

typedef float32x4_t vec;
enum { VEC_WIDTH = 4, FMA_CHAINS = 24, DOT_CHAINS = 12 };
static inline vec vec_set(float x) {
    return vdupq_n_f32(x);
}
static inline vec vec_fma(vec a, vec b, vec c) {
    return vfmaq_f32(c, a, b);
}
static inline vec vec_add(vec a, vec b) {
    return vaddq_f32(a, b);
}
static inline vec vec_load(const float *p) {
    return vld1q_f32(p);
}

/* Without the dot product extension, which not every aarch64 CPU has: widening multiplies. */
typedef int32x4_t ints;
static inline ints ints_zero(void) {
    return vdupq_n_s32(0);
}
static inline ints ints_dot(ints sum, ints w, ints x) {
    int8x16_t a = vreinterpretq_s8_s32(w), b = vreinterpretq_s8_s32(x);
    int16x8_t pairs = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    return vpadalq_s16(sum, vmlal_high_s8(pairs, a, b));
}
static inline ints ints_add(ints a, ints b) {
    return vaddq_s32(a, b);
}
static inline ints ints_inputs(const signed char *four) {
    int32_t word;
    memcpy(&word, four, sizeof word);
    return vdupq_n_s32(word);
}

#include "lab/ceiling_compute.inc"
#include "lab/ceiling_dot.inc"
#include "lab/ceiling_read.inc"

const struct ceiling_ops ceiling_neon = {"neon", read_way, run_fma, run_dot};
