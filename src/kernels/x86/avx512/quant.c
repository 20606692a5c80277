/* The quantised kernels of AVX-512 BW: kvad_linear_q8_avx512, kvad_linear_q4_avx512,
 * kvad_quantise_row_avx512. */
#define ISA(name) kvad_##name##_avx512
#include "kernels/body/common.h"
#include "kernels/simd/quant_avx512.h"
#include "kernels/simd/quantise_avx512.h"
#include "kernels/simd/quantise_block_avx2.h"

/* 32 registers: 20 integer sums (q8), 2 weights, 1 input, 1 constant; the float sums wait in
 * memory. */
#define QUANT_FEW_ROWS   4
#define QUANT_FEW(X)     X(1, 1) X(2, 1) X(3, 1) X(4, 1)
#define QUANT_MAX_ROWS   10
#define QUANT_MAX_PANELS 1
#define QUANT_MANY(X)    X(5, 1) X(6, 1) X(7, 1) X(8, 1) X(9, 1) X(10, 1)
#include "kernels/body/linear_quant.inc"
#define QUANTISES_BLOCKS
#include "kernels/body/quantise_row.inc"

void kvad_kernels_avx512_quant(struct kvad_kernels *kernels) {
    kernels->linear_q8 = ISA(linear_q8);
    kernels->linear_q4 = ISA(linear_q4);
    kernels->quantise_row = ISA(quantise_row);
}
