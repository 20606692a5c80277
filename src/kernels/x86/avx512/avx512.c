/* The kernels of AVX-512 (F, BW, VL, DQ): kvad_linear_f32_avx512 and so on. */
#define ISA(name) kvad_##name##_avx512
#include "kernels/body/common.h"
#include "kernels/simd/f32_avx512.h"

/* 32 registers: 28 sums, 2 weights, 1 value. Eight panels side by side for one row: 8 chains. */
#define LINEAR_MAX_ROWS      14
#define LINEAR_MAX_PANELS    8
#define LINEAR_PAIR(X, rows) X(rows, 2) X(rows, 1)
#define LINEAR_TILES(X)                                                                            \
    X(1, 8)                                                                                        \
    X(1, 4)                                                                                        \
    X(1, 2)                                                                                        \
    X(1, 1)                                                                                        \
    X(2, 4)                                                                                        \
    X(3, 4)                                                                                        \
    LINEAR_PAIR(X, 2)                                                                              \
    LINEAR_PAIR(X, 3)                                                                              \
    LINEAR_PAIR(X, 4)                                                                              \
    LINEAR_PAIR(X, 5)                                                                              \
    LINEAR_PAIR(X, 6)                                                                              \
    LINEAR_PAIR(X, 7)                                                                              \
    LINEAR_PAIR(X, 8)                                                                              \
    LINEAR_PAIR(X, 9)                                                                              \
    LINEAR_PAIR(X, 10)                                                                             \
    LINEAR_PAIR(X, 11)                                                                             \
    LINEAR_PAIR(X, 12)                                                                             \
    LINEAR_PAIR(X, 13)                                                                             \
    LINEAR_PAIR(X, 14)
#include "kernels/body/linear.inc"

void kvad_kernels_avx512(struct kvad_kernels *kernels) {
    kernels->linear_f32 = ISA(linear_f32);
}
