/* The portable kernels for the oldest CPU of the architecture: kvad_linear_f32_baseline and so on.
 */
#define ISA(name) kvad_##name##_baseline
#include "kernels/portable/level.inc"

void kvad_kernels_baseline(struct kvad_kernels *kernels) {
    ISA(fill)(kernels);
}
