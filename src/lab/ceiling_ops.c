#include "lab/ceiling_ops.h"

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
