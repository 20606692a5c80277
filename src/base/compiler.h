/* The compiler extensions that the project allows itself, in one place. */
#ifndef KVAD_BASE_COMPILER_H
#define KVAD_BASE_COMPILER_H

#include <stdint.h>

#if defined(__GNUC__)
#define KVAD_PRINTF(format_index, first_index)                                                     \
    __attribute__((format(printf, format_index, first_index)))
#define KVAD_ALIGNED(n)    __attribute__((aligned(n)))
#define KVAD_ALWAYS_INLINE inline __attribute__((always_inline))
#define KVAD_PREFETCH(p)   __builtin_prefetch(p, 0, 2) /* to read, second cache; never faults */
#else
#define KVAD_PRINTF(format_index, first_index)
#define KVAD_ALIGNED(n)
#define KVAD_ALWAYS_INLINE inline
#define KVAD_PREFETCH(p)   ((void)(p))
#endif

/* Before a loop of constant length whose arrays must become registers, and before one that must
 * stay a loop. */
#if defined(__clang__)
#define KVAD_UNROLL    _Pragma("clang loop unroll(full)")
#define KVAD_NO_UNROLL _Pragma("clang loop unroll(disable)")
#elif defined(__GNUC__)
#define KVAD_UNROLL    _Pragma("GCC unroll 32")
#define KVAD_NO_UNROLL _Pragma("GCC unroll 1")
#else
#define KVAD_UNROLL
#define KVAD_NO_UNROLL
#endif

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/** Tell the CPU that this is a spinning wait. */
static inline void kvad_cpu_relax(void) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* yield is a no-op on most cores; isb waits a little */
#endif
}

#if defined(__aarch64__)
/* Floating-point control (rounding, flush to zero) and status (sticky flags) registers. */
static inline uint64_t kvad_fpcr_read(void) {
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
}
static inline void kvad_fpcr_write(uint64_t value) {
    __asm__ volatile("msr fpcr, %0" ::"r"(value));
}
static inline uint64_t kvad_fpsr_read(void) {
    uint64_t value;
    __asm__ volatile("mrs %0, fpsr" : "=r"(value));
    return value;
}
static inline void kvad_fpsr_write(uint64_t value) {
    __asm__ volatile("msr fpsr, %0" ::"r"(value));
}
#endif

#endif
