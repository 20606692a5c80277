/* The loops behind lab/ceiling.h: what one core can read and compute at best with the vectors of
 * one kernel level. */
#ifndef KVAD_LAB_CEILING_OPS_H
#define KVAD_LAB_CEILING_OPS_H

#include "kernels/kernels.h"

/* Ways to walk over memory; which is the fastest depends on the machine's prefetchers. */
enum { CEILING_STREAM_CHOICES = 4 /* 1, 2, 4, 8 streams */, CEILING_WAYS = 8 };

struct ceiling_ops {
    const char *name;
    /* Read `bytes` (whole lines of 64) at `data`, aligned to 64: streams 1 << (way % 4), with
     * prefetches for way >= 4. The result is the exclusive or of all
     * 64-bit words, so that no read can be left out. */
    uint64_t (*read)(const unsigned char *data, size_t bytes, unsigned way);
    /* `n_steps` rounds of independent multiply-adds in float32; *flops: operations done, two for
     * each multiply-add. */
    float (*fma)(size_t n_steps, double *flops);
    /* The same with products of 8-bit integers summed in 32 bits; NULL: the level has no
     * instruction for it. */
    int32_t (*dot)(size_t n_steps, double *ops);
};

extern const struct ceiling_ops ceiling_plain;
#if defined(__x86_64__)
extern const struct ceiling_ops ceiling_avx2, ceiling_avx512, ceiling_avx512_vnni;
#elif defined(__aarch64__)
extern const struct ceiling_ops ceiling_neon;
#endif

/** The loops of a level that this CPU supports. The portable level is C compiled with the CPU's
 * fma, hence has the same limits as the vectors it is compiled to. */
const struct ceiling_ops *ceiling_ops_of(enum kvad_cpu_level level);

#endif
