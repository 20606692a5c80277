/* CPU levels: names, detection, choice. */
#include <stdatomic.h>
#include <string.h>

#include "kernels/levels.h"

static const char *const level_names[KVAD_CPU_LEVEL_COUNT] = {
    [KVAD_CPU_BASELINE] = "baseline",
    [KVAD_CPU_PORTABLE] = "portable",
    [KVAD_CPU_AVX2] = "avx2",
    [KVAD_CPU_AVX512] = "avx512",
    [KVAD_CPU_AVX512_VNNI] = "avx512-vnni",
    [KVAD_CPU_NEON] = "neon",
    [KVAD_CPU_NEON_DOTPROD] = "neon-dotprod",
};

const char *kvad_cpu_level_name(enum kvad_cpu_level level) {
    return (unsigned)level < KVAD_CPU_LEVEL_COUNT ? level_names[level] : "unknown";
}

bool kvad_cpu_level_from_name(const char *name, enum kvad_cpu_level *out) {
    for (int level = 0; level < KVAD_CPU_LEVEL_COUNT; level++) {
        if (strcmp(name, level_names[level]) != 0) continue;
        *out = (enum kvad_cpu_level)level;
        return true;
    }
    return false;
}

#if defined(__x86_64__)

#include <cpuid.h>

/* Which register sets the operating system saves (XCR0). Only valid where cpuid shows OSXSAVE. */
static unsigned read_xcr0(void) {
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Bit (1 << level) for each level that the CPU has AND the operating system saves the registers of.
 */
static unsigned detect_levels(void) {
    enum { SAVES_YMM = 0x6, SAVES_ZMM = 0xe6 };
    unsigned levels = 1u << KVAD_CPU_BASELINE, a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return levels;
    bool has_f16c = c & bit_F16C;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return levels;
    unsigned saved = read_xcr0();
    if ((saved & SAVES_YMM) != SAVES_YMM) return levels;
    levels |= 1u << KVAD_CPU_PORTABLE;
    if (!has_f16c) return levels;
    levels |= 1u << KVAD_CPU_AVX2;
    unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if ((b & avx512) != avx512 || (saved & SAVES_ZMM) != SAVES_ZMM) return levels;
    levels |= 1u << KVAD_CPU_AVX512;
    if (c & bit_AVX512VNNI) levels |= 1u << KVAD_CPU_AVX512_VNNI;
    return levels;
}

#elif defined(__aarch64__)

#if defined(__linux__)
#include <sys/auxv.h>
static bool has_dotprod(void) {
    enum { ASIMDDP = 1 << 20 }; /* HWCAP_ASIMDDP; older headers do not name it */
    return getauxval(AT_HWCAP) & ASIMDDP;
}
#else
static bool has_dotprod(void) {
    return false;
}
#endif

/* Advanced SIMD and fma are part of every aarch64 CPU. */
static unsigned detect_levels(void) {
    unsigned levels = 1u << KVAD_CPU_BASELINE | 1u << KVAD_CPU_PORTABLE | 1u << KVAD_CPU_NEON;
    return has_dotprod() ? levels | 1u << KVAD_CPU_NEON_DOTPROD : levels;
}

#else

static unsigned detect_levels(void) {
    return 1u << KVAD_CPU_BASELINE | 1u << KVAD_CPU_PORTABLE;
}

#endif

bool kvad_cpu_level_supported(enum kvad_cpu_level level) {
    static _Atomic unsigned cached; /* 0 until the first call; every thread computes the same */
    unsigned levels = atomic_load_explicit(&cached, memory_order_relaxed);
    if (levels == 0) {
        levels = detect_levels();
        atomic_store_explicit(&cached, levels, memory_order_relaxed);
    }
    return (unsigned)level < KVAD_CPU_LEVEL_COUNT && (levels >> level & 1u);
}

enum kvad_cpu_level kvad_cpu_level_best(void) {
    enum kvad_cpu_level best = KVAD_CPU_BASELINE;
    for (int level = 0; level < KVAD_CPU_LEVEL_COUNT; level++)
        if (kvad_cpu_level_supported((enum kvad_cpu_level)level)) best = (enum kvad_cpu_level)level;
    return best;
}

void kvad_kernels_pick(struct kvad_kernels *kernels, enum kvad_cpu_level level) {
    kvad_kernels_baseline(kernels);
    if (level >= KVAD_CPU_PORTABLE) kvad_kernels_portable(kernels);
#if defined(__x86_64__)
    if (level >= KVAD_CPU_AVX2) {
        kvad_kernels_avx2(kernels);
        kvad_kernels_avx2_quant(kernels);
    }
    if (level >= KVAD_CPU_AVX512) {
        kvad_kernels_avx512(kernels);
        kvad_kernels_avx512_quant(kernels);
    }
    if (level >= KVAD_CPU_AVX512_VNNI) kvad_kernels_avx512_vnni(kernels);
#elif defined(__aarch64__)
    if (level >= KVAD_CPU_NEON) {
        kvad_kernels_neon(kernels);
        kvad_kernels_neon_quant(kernels);
    }
    if (level >= KVAD_CPU_NEON_DOTPROD) kvad_kernels_neon_dotprod(kernels);
#endif
    kernels->isa = kvad_cpu_level_name(level);
}
