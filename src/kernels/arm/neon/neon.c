/* The kernels of Advanced SIMD on AArch64: kvad_linear_f32_neon and so on. */
#define ISA(name) kvad_##name##_neon
#include "kernels/body/common.h"
#include "kernels/simd/half_neon.h"

/* 32 registers: 24 sums, 4 weights, 1 value. Four panels side by side for one row: 16 chains. */
#define TILE_MAX_ROWS   6
#define TILE_MAX_PANELS 4
#define TILE_SHAPES(X)                                                                             \
    X(1, 4) X(1, 2) X(1, 1) X(2, 2) X(2, 1) X(3, 2) X(3, 1) X(4, 1) X(5, 1) X(6, 1)
/* Four registers a panel: 16 to 24 sums. */
#define ATTENTION_MAX_ROWS   6
#define ATTENTION_MAX_PANELS 4
#define ATTENTION_SHAPES(X)  X(1, 4) X(1, 1) X(2, 2) X(2, 1) X(4, 1) X(6, 1)
#define HALF_ROWS(X)         X(1) X(2) X(3) X(4) X(5) X(6)
#include "kernels/body/level.inc"

void kvad_kernels_neon(struct kvad_kernels *kernels) {
    ISA(fill)(kernels);
}
