/* The compiler extensions that the project allows itself, in one place. */
#ifndef KVAD_BASE_COMPILER_H
#define KVAD_BASE_COMPILER_H

#if defined(__GNUC__)
#define KVAD_PRINTF(format_index, first_index)                                                     \
    __attribute__((format(printf, format_index, first_index)))
#define KVAD_ALIGNED(n) __attribute__((aligned(n)))
#else
#define KVAD_PRINTF(format_index, first_index)
#define KVAD_ALIGNED(n)
#endif

#endif
