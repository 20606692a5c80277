#include "kernels/kernels.h"
#include "kvad/kvad.h"

const char *kvad_cpu_supported(unsigned index) {
    for (unsigned level = 0; level < KVAD_CPU_LEVEL_COUNT; level++) {
        if (!kvad_cpu_level_supported((enum kvad_cpu_level)level)) continue;
        if (index-- == 0) return kvad_cpu_level_name((enum kvad_cpu_level)level);
    }
    return NULL;
}
