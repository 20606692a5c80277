/* Read bandwidth and fma rate of this CPU per level, for the benches. */
#ifndef KVAD_TESTS_KERNELS_CEILING_H
#define KVAD_TESTS_KERNELS_CEILING_H

#include <stddef.h>

/* Read n floats; the sum is returned so that the reads are not left out. */
typedef float ceiling_read_fn(const float *data, size_t n);
/* n_steps rounds of independent fma; *flops is how many operations that was. */
typedef float ceiling_fma_fn(size_t n_steps, double *flops);

ceiling_read_fn ceiling_read_avx2, ceiling_read_avx512, ceiling_read_neon;
ceiling_fma_fn ceiling_fma_avx2, ceiling_fma_avx512, ceiling_fma_neon;

#endif
