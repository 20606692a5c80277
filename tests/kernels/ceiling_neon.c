/* ceiling_read_neon, ceiling_fma_neon */
#include "kernels/simd/f32_neon.h"
#define CEILING(name) ceiling_##name##_neon
enum { N_CHAINS = 24 };
#include "ceiling.inc"
