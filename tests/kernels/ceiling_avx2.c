/* ceiling_read_avx2, ceiling_fma_avx2 */
#include "kernels/simd/f32_avx2.h"
#define CEILING(name) ceiling_##name##_avx2
enum { N_CHAINS = 12 };
#include "ceiling.inc"
