/* Sixteen floats of AVX-512 (F, BW, VL, DQ). Same functions as the other simd/f32_*.h. */
#ifndef KVAD_KERNELS_SIMD_F32_AVX512_H
#define KVAD_KERNELS_SIMD_F32_AVX512_H

#include <immintrin.h>
#include <stddef.h>

enum { VEC_WIDTH = 16 };
typedef __m512 vec;
typedef __mmask16 vec_mask;

static inline vec vec_zero(void) {
    return _mm512_setzero_ps();
}
static inline vec vec_set(float x) {
    return _mm512_set1_ps(x);
}
static inline vec vec_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void vec_store(float *p, vec a) {
    _mm512_storeu_ps(p, a);
}
/* The first n elements, n <= VEC_WIDTH: of the other lanes no memory is touched, their value is +0.
 */
static inline __mmask16 vec_first(size_t n) {
    return (__mmask16)((1u << n) - 1u);
}
static inline vec vec_load_part(const float *p, size_t n) {
    return _mm512_maskz_loadu_ps(vec_first(n), p);
}
static inline void vec_store_part(float *p, vec a, size_t n) {
    _mm512_mask_storeu_ps(p, vec_first(n), a);
}
static inline vec vec_keep_first(vec a, size_t n) {
    return _mm512_maskz_mov_ps(vec_first(n), a);
}
/* The first n elements of `yes`, the others of `no`. */
static inline vec vec_select_first(vec yes, vec no, size_t n) {
    return _mm512_mask_blend_ps(vec_first(n), no, yes);
}
static inline vec vec_add(vec a, vec b) {
    return _mm512_add_ps(a, b);
}
static inline vec vec_sub(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}
static inline vec vec_mul(vec a, vec b) {
    return _mm512_mul_ps(a, b);
}
static inline vec vec_div(vec a, vec b) {
    return _mm512_div_ps(a, b);
}
/* a * b + c, one rounding. */
static inline vec vec_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
/* a > b ? a : b, hence b where one is NaN. */
static inline vec vec_max(vec a, vec b) {
    return _mm512_max_ps(a, b);
}
/* a < b ? a : b, hence b where one is NaN. */
static inline vec vec_min(vec a, vec b) {
    return _mm512_min_ps(a, b);
}
/* The largest lane; none is NaN. */
static inline float vec_largest(vec a) {
    return _mm512_reduce_max_ps(a);
}
/* Lanes fold 8, 4, 2, 1: a + b of lanes i and i + n / 2, again and again. */
static inline float vec_fold(vec a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline vec_mask vec_less(vec a, vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline vec_mask vec_equal(vec a, vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
static inline vec_mask vec_is_nan(vec a) {
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
static inline vec vec_select(vec_mask mask, vec yes, vec no) {
    return _mm512_mask_blend_ps(mask, no, yes);
}
static inline vec vec_abs(vec a) {
    return _mm512_abs_ps(a);
}
static inline vec vec_negate(vec a) {
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
static inline vec vec_copysign(vec magnitude, vec sign) {
    vec bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
}
/* a * 2^n for the integer n in the low bits of `shifted` (EXP_SHIFT + n); the result is normal. */
static inline vec vec_scale_exponent(vec a, vec shifted) {
    __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), exponent));
}

#endif
