#include "check.h"
void bench_kernels(const struct kvad_kernels *kernels, enum kvad_cpu_level level) {
    (void)kernels;
    (void)level;
}
