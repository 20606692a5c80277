/* defines ceiling_avx512 */
#include "lab/ceiling_avx512.inc"

static inline ints ints_dot(ints sum, ints w, ints x) {
    ints pairs = _mm512_maddubs_epi16(w, x);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

#include "lab/ceiling_compute.inc"
#include "lab/ceiling_dot.inc"
#include "lab/ceiling_read.inc"

const struct ceiling_ops ceiling_avx512 = {"avx512", read_way, run_fma, run_dot};
