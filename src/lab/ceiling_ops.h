/* The loops behind lab/ceiling.h: what one core can read and compute at best with the vectors of
 * one kernel level. */
#ifndef KVAD_LAB_CEILING_OPS_H
#define KVAD_LAB_CEILING_OPS_H

#include "base/compiler.h"
#include "kernels/kernels.h"

/* Ways to walk over memory; which is the fastest depends on the machine's prefetchers. */
enum { CEILING_STREAM_CHOICES = 4 /* 1, 2, 4, 8 streams */, CEILING_WAYS = 8 };

/* What the loops compute with. They get it from outside, and their result is the sum of every
 * product: one that a compiler has left out, since it saw a zero, a one or the same factors in
 * every step, would be missing from it. */
enum {
    CEILING_STARTS = 192,  /* floats of the widest level: its chains by its lanes */
    CEILING_WEIGHTS = 384, /* bytes of a step, of the widest level */
    CEILING_SETS = 4       /* of weights; step s has set s % n_sets */
};
struct ceiling_operands {
    float start[CEILING_STARTS], factor, term; /* every step: value = value * factor + term */
    /* 0 to 127, so that two products with an input fit in 16 bits */
    KVAD_ALIGNED(64) unsigned char weights[CEILING_SETS][CEILING_WEIGHTS];
    size_t n_sets; /* 1 to CEILING_SETS */
    /* Byte i of a step is multiplied by inputs[0][i % 4] and by inputs[1][i % 4]. */
    signed char inputs[2][4];
};

struct ceiling_ops {
    const char *name;
    /* Read `bytes` (whole lines of 64) at `data`, aligned to 64: streams 1 << (way % 4), with
     * prefetches for way >= 4. The result is the exclusive or of all
     * 64-bit words, so that no read can be left out. */
    uint64_t (*read)(const unsigned char *data, size_t bytes, unsigned way);
    /* `n_steps` rounds of independent multiply-adds in float32, one on each of the first
     * operands->start; *flops: operations done, two for each multiply-add. The result is the sum
     * of all values. */
    float (*fma)(const struct ceiling_operands *operands, size_t n_steps, double *flops);
    /* Step s adds all products of the first bytes of weights[s % n_sets] with both inputs in 32
     * bits: a weight that is loaded is used twice, or loads would be the limit. The result is the
     * sum of all, modulo 2^32. NULL: the level has no instruction for it. */
    uint32_t (*dot)(const struct ceiling_operands *operands, size_t n_steps, double *ops);
};

extern const struct ceiling_ops ceiling_plain;
#if defined(__x86_64__)
extern const struct ceiling_ops ceiling_avx2, ceiling_avx512, ceiling_avx512_vnni;
#elif defined(__aarch64__)
extern const struct ceiling_ops ceiling_neon;
#endif

/** Operands to measure with: the floats go to 1, all weights and inputs are other than 0. */
void ceiling_operands_init(struct ceiling_operands *operands);

/** The loops of a level that this CPU supports. The portable level is C compiled with the CPU's
 * fma, hence has the same limits as the vectors it is compiled to. */
const struct ceiling_ops *ceiling_ops_of(enum kvad_cpu_level level);

#endif
