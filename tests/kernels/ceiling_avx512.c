/* ceiling_read_avx512, ceiling_fma_avx512 */
#include "kernels/simd/f32_avx512.h"
#define CEILING(name) ceiling_##name##_avx512
enum { N_CHAINS = 12 };
#include "ceiling.inc"
