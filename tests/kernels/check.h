/* The frame of kvad-check: buffers with guard pages, canaries, seeded values, exact comparison.
 *
 * A check of an operation runs many cases. A case makes inputs and outputs, calls the reference and
 * the new function on equal data and compares every float of the outputs, canaries included; all
 * NaNs are equal, a NaN on one side only is a failure. Not thread-safe: one check runs at a time.
 */
#ifndef KVAD_TESTS_KERNELS_CHECK_H
#define KVAD_TESTS_KERNELS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "kernels/kernels.h"

enum check_pattern {
    PATTERN_PLAIN,   /* uniform in [-1, 1) */
    PATTERN_WIDE,    /* any sign, 2^-20 to 2^20: cancellation and lost low bits */
    PATTERN_TINY,    /* products are subnormal or underflow */
    PATTERN_SPECIAL, /* plain with NaN, infinities, zeros, subnormals, largest values strewn in */
    PATTERN_COUNT
};

/* Where the data touches its guard page: an access one float beyond that side faults. */
enum check_side { SIDE_END, SIDE_START, SIDE_COUNT };

enum { CHECK_MAX_BUFFERS = 32, CHECK_CANARIES = 16 };

struct check_buffer {
    void *map;
    size_t map_bytes;
};

struct check {
    uint64_t seed;
    const char *level, *op;
    char case_text[160];
    enum check_side side;
    uint64_t n_values; /* position in the sequence of random values */
    struct check_buffer buffers[CHECK_MAX_BUFFERS];
    size_t n_buffers;
    size_t n_cases, n_failures;
};

/* One output for the reference and one for the new function, with equal first contents. */
struct check_output {
    float *want, *got;
    size_t n;
};

/** Start a case: release the buffers of the last one and note what the case is. */
void check_case(struct check *c, const char *format, ...) KVAD_PRINTF(2, 3);
/** Next random value. */
uint32_t check_random(struct check *c);
/** Random number in [0, n). */
size_t check_random_below(struct check *c, size_t n);
/** An infinity, a zero, a NaN with any payload, a subnormal, an extreme or a critical value. */
float check_special(struct check *c);
/** A float of a pattern. */
float check_float(struct check *c, enum check_pattern pattern);
/** n floats of a pattern against a guard page on c->side; write to it before check_freeze(). */
float *check_input(struct check *c, size_t n, enum check_pattern pattern);
/** Make all inputs of the case read-only. */
void check_freeze(struct check *c);
/** Two outputs of n floats, filled with canary values (also round them). */
struct check_output check_output(struct check *c, size_t n);
/** Copy the same n floats into both. */
void check_output_set(struct check_output *out, const float *values, size_t n);
/** Compare both outputs and their canaries; a difference is reported once per case. */
void check_equal(struct check *c, const struct check_output *out);
/** Report a failure of the current case. */
void check_fail(struct check *c, const char *format, ...) KVAD_PRINTF(2, 3);
/** Release what is left. */
void check_end(struct check *c);

/** Whether two floats are the same bits, all NaNs being equal. */
bool same_bits(float a, float b);

/** From here on a fault or an illegal instruction ends the program with a line that names the case.
 */
void check_catch_faults(const struct check *c);

/* The operations; each compares `new_fn` with `ref` over its own sizes. */
void check_linear(struct check *c, kvad_linear_f32_fn *ref, kvad_linear_f32_fn *new_fn);
void check_linear_half(struct check *c, kvad_linear_half_fn *ref, kvad_linear_half_fn *new_fn);
void check_linear_q8(struct check *c, kvad_linear_quant_fn *ref, kvad_linear_quant_fn *new_fn);
void check_linear_q4(struct check *c, kvad_linear_quant_fn *ref, kvad_linear_quant_fn *new_fn);
void check_quantise_row(struct check *c, kvad_quantise_row_fn *ref, kvad_quantise_row_fn *new_fn);
void check_layer_norm(struct check *c, kvad_layer_norm_fn *ref, kvad_layer_norm_fn *new_fn);
void check_unary(struct check *c, kvad_unary_fn *ref, kvad_unary_fn *new_fn);
void check_narrow(struct check *c, kvad_narrow_fn *ref, kvad_narrow_fn *new_fn);
void check_add(struct check *c, kvad_add_fn *ref, kvad_add_fn *new_fn);
void check_residual(struct check *c, kvad_residual_fn *ref, kvad_residual_fn *new_fn);
void check_scale(struct check *c, kvad_scale_fn *ref, kvad_scale_fn *new_fn);
void check_divide(struct check *c, kvad_divide_fn *ref, kvad_divide_fn *new_fn);
void check_attention_chunk(struct check *c, kvad_attention_chunk_fn *ref,
                           kvad_attention_chunk_fn *new_fn);
void check_attention_merge(struct check *c, kvad_attention_merge_fn *ref,
                           kvad_attention_merge_fn *new_fn);

/** Sizes of a vector: every n up to two of the widest unrolled vectors and one, then real ones;
 * 0 ends the list. */
size_t check_size(size_t index);

/* The baseline against long double (accuracy.c), the stored digests (golden.c), timing (bench.c).
 */
void check_accuracy(struct check *c, const struct kvad_kernels *kernels, uint64_t step);
void check_half_accuracy(struct check *c, const struct kvad_kernels *kernels);
void check_quant_accuracy(struct check *c, const struct kvad_kernels *kernels);
void check_golden(struct check *c, const struct kvad_kernels *kernels, bool is_printing);
void bench_kernels(const struct kvad_kernels *kernels, enum kvad_cpu_level level, const char *op);

#endif
