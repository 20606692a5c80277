/* The quantised kernels of Advanced SIMD: kvad_linear_q8_neon, kvad_linear_q4_neon,
 * kvad_quantise_row_neon. */
#define ISA(name) kvad_##name##_neon
#include "kernels/body/common.h"
#include "kernels/simd/quant_neon.h"
#include "kernels/simd/quantise_neon.h"

/* 32 registers: 16 integer sums (q8), 4 weights, 1 input, 2 products; the float sums wait in
 * memory. */
#define QUANT_FEW_ROWS   4
#define QUANT_FEW(X)     X(1, 1) X(2, 1) X(3, 1) X(4, 1)
#define QUANT_MAX_ROWS   4
#define QUANT_MAX_PANELS 1
#define QUANT_MANY(X)    X(2, 1) X(3, 1) X(4, 1)
#include "kernels/body/linear_quant.inc"
#include "kernels/body/quantise_row.inc"

void kvad_kernels_neon_quant(struct kvad_kernels *kernels) {
    kernels->linear_q8 = ISA(linear_q8);
    kernels->linear_q4 = ISA(linear_q4);
    kernels->quantise_row = ISA(quantise_row);
}
