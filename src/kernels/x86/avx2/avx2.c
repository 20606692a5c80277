/* The kernels of AVX2 with FMA: kvad_linear_f32_avx2 and so on. */
#define ISA(name) kvad_##name##_avx2
#include "kernels/body/common.h"
#include "kernels/simd/half_avx2.h"

/* 16 registers: 12 sums, 2 weights, 1 value. One row reads one panel after the other. */
#define TILE_MAX_ROWS   6
#define TILE_MAX_PANELS 3
#define TILE_SHAPES(X)  X(1, 1) X(2, 3) X(2, 1) X(3, 2) X(3, 1) X(4, 1) X(5, 1) X(6, 1)
/* Two registers a panel: 8 to 12 sums. */
#define ATTENTION_MAX_ROWS   6
#define ATTENTION_MAX_PANELS 4
#define ATTENTION_SHAPES(X)  X(1, 4) X(1, 1) X(2, 2) X(2, 1) X(4, 1) X(6, 1)
#define HALF_ROWS(X)         X(1) X(2) X(3) X(4) X(5) X(6)
#include "kernels/body/level.inc"

void kvad_kernels_avx2(struct kvad_kernels *kernels) {
    ISA(fill)(kernels);
}
