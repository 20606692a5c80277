/* Four floats of Advanced SIMD (AArch64). Same functions as the other simd/f32_*.h. */
#ifndef KVAD_KERNELS_SIMD_F32_NEON_H
#define KVAD_KERNELS_SIMD_F32_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <string.h>

enum { VEC_WIDTH = 4 };
typedef float32x4_t vec;
typedef uint32x4_t vec_mask;

static inline vec vec_zero(void) {
    return vdupq_n_f32(0.0f);
}
static inline vec vec_set(float x) {
    return vdupq_n_f32(x);
}
static inline vec vec_load(const float *p) {
    return vld1q_f32(p);
}
static inline void vec_store(float *p, vec a) {
    vst1q_f32(p, a);
}
/* The first n elements, n <= VEC_WIDTH: of the other lanes no memory is touched, their value is +0.
 */
static inline vec_mask vec_first(size_t n) {
    static const uint32_t numbers[4] = {0, 1, 2, 3};
    return vcltq_u32(vld1q_u32(numbers), vdupq_n_u32((uint32_t)n));
}
static inline vec vec_load_part(const float *p, size_t n) {
    float lanes[VEC_WIDTH] = {0};
    memcpy(lanes, p, n * sizeof *p);
    return vld1q_f32(lanes);
}
static inline void vec_store_part(float *p, vec a, size_t n) {
    float lanes[VEC_WIDTH];
    vst1q_f32(lanes, a);
    memcpy(p, lanes, n * sizeof *p);
}
static inline vec vec_keep_first(vec a, size_t n) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), vec_first(n)));
}
/* The first n elements of `yes`, the others of `no`. */
static inline vec vec_select_first(vec yes, vec no, size_t n) {
    return vbslq_f32(vec_first(n), yes, no);
}
static inline vec vec_add(vec a, vec b) {
    return vaddq_f32(a, b);
}
static inline vec vec_sub(vec a, vec b) {
    return vsubq_f32(a, b);
}
static inline vec vec_mul(vec a, vec b) {
    return vmulq_f32(a, b);
}
static inline vec vec_div(vec a, vec b) {
    return vdivq_f32(a, b);
}
/* a * b + c, one rounding. */
static inline vec vec_fma(vec a, vec b, vec c) {
    return vfmaq_f32(c, a, b);
}
static inline vec vec_select(vec_mask mask, vec yes, vec no) {
    return vbslq_f32(mask, yes, no);
}
/* a > b ? a : b, hence b where one is NaN (vmaxq_f32 would give the NaN). */
static inline vec vec_max(vec a, vec b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
/* a < b ? a : b, hence b where one is NaN (vminq_f32 would give the NaN). */
static inline vec vec_min(vec a, vec b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
/* The largest lane; none is NaN. */
static inline float vec_largest(vec a) {
    return vmaxvq_f32(a);
}
/* Lanes fold 2, 1: a + b of lanes i and i + n / 2, again. */
static inline float vec_fold(vec a) {
    float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
static inline vec_mask vec_less(vec a, vec b) {
    return vcltq_f32(a, b);
}
static inline vec_mask vec_equal(vec a, vec b) {
    return vceqq_f32(a, b);
}
static inline vec_mask vec_is_nan(vec a) {
    return vmvnq_u32(vceqq_f32(a, a));
}
static inline vec vec_abs(vec a) {
    return vabsq_f32(a);
}
static inline vec vec_negate(vec a) {
    return vnegq_f32(a);
}
static inline vec vec_copysign(vec magnitude, vec sign) {
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, magnitude);
}
/* a * 2^n for the integer n in the low bits of `shifted` (EXP_SHIFT + n); the result is normal. */
static inline vec vec_scale_exponent(vec a, vec shifted) {
    uint32x4_t exponent = vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), exponent));
}

#endif
