/* defines ceiling_avx512_vnni */
#include "lab/ceiling_avx512.inc"

static inline ints ints_dot(ints sum, ints w, ints x) {
    return _mm512_dpbusd_epi32(sum, w, x);
}

#include "lab/ceiling_compute.inc"
#include "lab/ceiling_dot.inc"
#include "lab/ceiling_read.inc"

const struct ceiling_ops ceiling_avx512_vnni = {"avx512-vnni", read_way, run_fma, run_dot};
