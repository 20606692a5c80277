/* The quantised kernels of AVX-512 VNNI: kvad_linear_q8_avx512_vnni, kvad_linear_q4_avx512_vnni. */
#define ISA(name) kvad_##name##_avx512_vnni
#include "kernels/body/common.h"
#include "kernels/simd/quant_avx512_vnni.h"

/* 32 registers: 14 integer sums, 14 float sums, 2 weights, 1 input. */
#define QUANT_FEW_ROWS   4
#define QUANT_FEW(X)     X(1, 1) X(2, 1) X(3, 1) X(4, 1)
#define QUANT_MAX_ROWS   7
#define QUANT_MAX_PANELS 2
#define QUANT_MANY(X)    X(4, 2) X(4, 1) X(5, 2) X(5, 1) X(6, 2) X(6, 1) X(7, 2) X(7, 1)
#include "kernels/body/linear_quant.inc"

void kvad_kernels_avx512_vnni(struct kvad_kernels *kernels) {
    kernels->linear_q8 = ISA(linear_q8);
    kernels->linear_q4 = ISA(linear_q4);
}
