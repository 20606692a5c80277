/* The kernels of AVX-512 (F, BW, VL, DQ): kvad_linear_f32_avx512 and so on. */
#define ISA(name) kvad_##name##_avx512
#include "kernels/body/common.h"
#include "kernels/simd/half_avx512.h"

/* 32 registers. One row reads one panel after the other; few need several for their chains. From 6
 * rows on one panel is enough, and its weights leave the first cache to the rows. */
#define TILE_MAX_ROWS   14
#define TILE_MAX_PANELS 4
/* clang-format off */
#define TILE_SHAPES(X)                                                                             \
    X(2, 4) X(3, 4) X(4, 4) X(5, 4)                                                                \
    X(2, 2) X(3, 2) X(4, 2) X(5, 2)                                                                \
    X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1)                                        \
    X(8, 1) X(9, 1) X(10, 1) X(11, 1) X(12, 1) X(13, 1) X(14, 1)
/* A register a panel: 4 to 16 sums. */
#define ATTENTION_MAX_ROWS   8
#define ATTENTION_MAX_PANELS 4
#define ATTENTION_SHAPES(X)                                                                        \
    X(1, 4) X(1, 1) X(2, 4) X(2, 1) X(4, 4) X(4, 1) X(8, 2) X(8, 1)
#define HALF_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
/* clang-format on */
#include "kernels/body/level.inc"

void kvad_kernels_avx512(struct kvad_kernels *kernels) {
    ISA(fill)(kernels);
}
