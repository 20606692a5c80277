/* What the integer dot products of AVX-512 BW and VNNI have in common: quants in registers. */
#ifndef KVAD_KERNELS_SIMD_QVEC_AVX512_H
#define KVAD_KERNELS_SIMD_QVEC_AVX512_H

#include "kernels/simd/half_avx512.h"

#include <string.h>

typedef __m512i qvec; /* bytes: four inputs of each of VEC_WIDTH outputs */

/* Four quants of a row, the same for every output. */
static inline qvec qvec_inputs(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
}

struct q4_weights {
    qvec low, high; /* quant + 8 */
};
static inline struct q4_weights q4_load(const unsigned char *w) {
    qvec both = _mm512_load_si512(w), mask = _mm512_set1_epi8(15);
    return (struct q4_weights){_mm512_and_si512(both, mask),
                               _mm512_and_si512(_mm512_srli_epi16(both, 4), mask)};
}

#endif
