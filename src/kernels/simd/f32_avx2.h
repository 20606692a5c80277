/* Eight floats of AVX2 with FMA. Same functions as the other simd/f32_*.h. */
#ifndef KVAD_KERNELS_SIMD_F32_AVX2_H
#define KVAD_KERNELS_SIMD_F32_AVX2_H

#include <immintrin.h>
#include <stddef.h>

enum { VEC_WIDTH = 8 };
typedef __m256 vec;
typedef __m256 vec_mask;

static inline vec vec_zero(void) {
    return _mm256_setzero_ps();
}
static inline vec vec_set(float x) {
    return _mm256_set1_ps(x);
}
static inline vec vec_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline void vec_store(float *p, vec a) {
    _mm256_storeu_ps(p, a);
}
/* The first n elements, n <= VEC_WIDTH: of the other lanes no memory is touched, their value is +0.
 */
static inline __m256i vec_first(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vec vec_load_part(const float *p, size_t n) {
    return _mm256_maskload_ps(p, vec_first(n));
}
static inline void vec_store_part(float *p, vec a, size_t n) {
    _mm256_maskstore_ps(p, vec_first(n), a);
}
static inline vec vec_keep_first(vec a, size_t n) {
    return _mm256_and_ps(a, _mm256_castsi256_ps(vec_first(n)));
}
/* The first n elements of `yes`, the others of `no`. */
static inline vec vec_select_first(vec yes, vec no, size_t n) {
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(vec_first(n)));
}
static inline vec vec_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}
static inline vec vec_sub(vec a, vec b) {
    return _mm256_sub_ps(a, b);
}
static inline vec vec_mul(vec a, vec b) {
    return _mm256_mul_ps(a, b);
}
static inline vec vec_div(vec a, vec b) {
    return _mm256_div_ps(a, b);
}
/* a * b + c, one rounding. */
static inline vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
/* a > b ? a : b, hence b where one is NaN. */
static inline vec vec_max(vec a, vec b) {
    return _mm256_max_ps(a, b);
}
/* a < b ? a : b, hence b where one is NaN. */
static inline vec vec_min(vec a, vec b) {
    return _mm256_min_ps(a, b);
}
/* The largest lane; none is NaN. */
static inline float vec_largest(vec a) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
/* Lanes fold 4, 2, 1: a + b of lanes i and i + n / 2, again and again. */
static inline float vec_fold(vec a) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
static inline vec_mask vec_less(vec a, vec b) {
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static inline vec_mask vec_equal(vec a, vec b) {
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
static inline vec_mask vec_is_nan(vec a) {
    return _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
}
static inline vec vec_select(vec_mask mask, vec yes, vec no) {
    return _mm256_blendv_ps(no, yes, mask);
}
static inline vec vec_abs(vec a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline vec vec_negate(vec a) {
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}
static inline vec vec_copysign(vec magnitude, vec sign) {
    vec bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
}
/* a * 2^n for the integer n in the low bits of `shifted` (EXP_SHIFT + n); the result is normal. */
static inline vec vec_scale_exponent(vec a, vec shifted) {
    __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), exponent));
}

#endif
