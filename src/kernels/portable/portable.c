/* The portable kernels for a CPU with fma (compiled with its flags): kvad_linear_f32_portable and
 * so on. */
#define ISA(name) kvad_##name##_portable
#include "kernels/portable/level.inc"

void kvad_kernels_portable(struct kvad_kernels *kernels) {
    ISA(fill)(kernels);
}
