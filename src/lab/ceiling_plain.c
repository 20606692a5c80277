/* defines ceiling_plain: what C for the oldest CPU of the architecture gives. */
#include <string.h>

#include "lab/ceiling_ops.h"

typedef uint64_t block;
static inline block block_zero(void) {
    return 0;
}
static inline block block_load(const unsigned char *p) {
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}
static inline block block_xor(block a, block b) {
    return a ^ b;
}
static inline uint64_t block_fold(block a) {
    return a;
}

/* A multiply and an add: such a CPU has no fma. The compiler makes vectors of the chains. */
typedef float vec;
enum { VEC_WIDTH = 1, FMA_CHAINS = 32 };
static inline vec vec_set(float x) {
    return x;
}
static inline vec vec_fma(vec a, vec b, vec c) {
    return a * b + c;
}
static inline vec vec_add(vec a, vec b) {
    return a + b;
}
static inline vec vec_load(const float *p) {
    return *p;
}

#include "lab/ceiling_compute.inc"
#include "lab/ceiling_read.inc"

const struct ceiling_ops ceiling_plain = {"plain", read_way, run_fma, NULL};
