/* defines ceiling_avx2 */
#include <immintrin.h>
#include <string.h>

#include "lab/ceiling_ops.h"

typedef __m256i block;
static inline block block_zero(void) {
    return _mm256_setzero_si256();
}
static inline block block_load(const unsigned char *p) {
    return _mm256_load_si256((const __m256i *)(const void *)p);
}
static inline block block_xor(block a, block b) {
    return _mm256_xor_si256(a, b);
}
static inline uint64_t block_fold(block a) {
    uint64_t words[4];
    _mm256_storeu_si256((__m256i *)(void *)words, a);
    return words[0] ^ words[1] ^ words[2] ^ words[3];
}

typedef __m256 vec;
enum { VEC_WIDTH = 8, FMA_CHAINS = 12, DOT_CHAINS = 6 };
static inline vec vec_set(float x) {
    return _mm256_set1_ps(x);
}
static inline vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline vec vec_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}
static inline vec vec_load(const float *p) {
    return _mm256_loadu_ps(p);
}

typedef __m256i ints;
static inline ints ints_zero(void) {
    return _mm256_setzero_si256();
}
static inline ints ints_dot(ints sum, ints w, ints x) {
    ints pairs = _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline ints ints_add(ints a, ints b) {
    return _mm256_add_epi32(a, b);
}
static inline ints ints_inputs(const signed char *four) {
    int32_t word;
    memcpy(&word, four, sizeof word);
    return _mm256_set1_epi32(word);
}

#include "lab/ceiling_compute.inc"
#include "lab/ceiling_dot.inc"
#include "lab/ceiling_read.inc"

const struct ceiling_ops ceiling_avx2 = {"avx2", read_way, run_fma, run_dot};
