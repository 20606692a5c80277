/* The quantised kernels of Advanced SIMD with FEAT_DotProd: kvad_linear_q8_neon_dotprod,
 * kvad_linear_q4_neon_dotprod. */
#define ISA(name) kvad_##name##_neon_dotprod
#include "kernels/body/common.h"
#include "kernels/simd/quant_neon_dotprod.h"

/* 32 registers: 16 integer sums, 4 or 8 weights, 1 or 2 inputs; the float sums wait in memory. */
#define QUANT_FEW_ROWS   4
#define QUANT_FEW(X)     X(1, 1) X(2, 1) X(3, 1) X(4, 1)
#define QUANT_MAX_ROWS   4
#define QUANT_MAX_PANELS 1
#define QUANT_MANY(X)    X(2, 1) X(3, 1) X(4, 1)
#include "kernels/body/linear_quant.inc"

void kvad_kernels_neon_dotprod(struct kvad_kernels *kernels) {
    kernels->linear_q8 = ISA(linear_q8);
    kernels->linear_q4 = ISA(linear_q4);
}
