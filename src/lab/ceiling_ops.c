#include "lab/ceiling_ops.h"

void ceiling_operands_init(struct ceiling_operands *operands) {
    /* The chains' end is 1e-6 / (1 - 0.999999) = 1. */
    *operands = (struct ceiling_operands){.factor = 0.999999f,
                                          .term = 1e-6f,
                                          .n_sets = CEILING_SETS,
                                          .inputs = {{127, -31, 7, -127}, {-5, 127, -127, 63}}};
    for (int i = 0; i < CEILING_STARTS; i++)
        operands->start[i] = (float)i;
    for (int step = 0; step < CEILING_SETS; step++)
        for (int i = 0; i < CEILING_WEIGHTS; i++)
            operands->weights[step][i] = (unsigned char)(1 + (i * 37 + step * 11) % 127);
}

const struct ceiling_ops *ceiling_ops_of(enum kvad_cpu_level level) {
    switch (level) {
#if defined(__x86_64__)
    case KVAD_CPU_PORTABLE:
    case KVAD_CPU_AVX2: return &ceiling_avx2;
    case KVAD_CPU_AVX512: return &ceiling_avx512;
    case KVAD_CPU_AVX512_VNNI: return &ceiling_avx512_vnni;
#elif defined(__aarch64__)
    case KVAD_CPU_PORTABLE:
    case KVAD_CPU_NEON:
    case KVAD_CPU_NEON_DOTPROD: return &ceiling_neon;
#endif
    default: return &ceiling_plain;
    }
}
