/* What this machine can do at best, measured: bytes read per second and operations per second on
 * the same threads, the same memory and with the same vectors as the engine. A step that reads
 * `bytes` and computes `flops` takes at least max(bytes / read, flops / fma): the roofline of
 * Williams, Waterman and Patterson, CACM 52(4), 2009. */
#ifndef KVAD_LAB_CEILING_H
#define KVAD_LAB_CEILING_H

#include "base/threads.h"
#include "lab/ceiling_ops.h"

struct kvad_ceiling {
    struct kvad_threads *threads; /* borrowed */
    const struct ceiling_ops *ops;
    const unsigned char *memory; /* borrowed; [bytes], aligned to 64 */
    size_t bytes;
    double seconds; /* what one measurement lasts, within a factor of 2 */
    unsigned way;   /* the fastest way to read this memory */
    size_t n_passes, n_fma_steps, n_dot_steps;
    struct ceiling_operands operands;
};

/** Prepare to measure on `memory`: the weights themselves, so that pages, their place and what a
 * cache may hold of them are the same as in a step. Tries every way to read it and sets the lengths
 * of measurements; takes some tenths of a second. At least one line of 64 bytes per thread. */
void kvad_ceiling_init(struct kvad_ceiling *ceiling, enum kvad_cpu_level level,
                       struct kvad_threads *threads, const void *memory, size_t bytes,
                       double seconds);

/** Bytes per second of reading the memory from end to end, each thread its share. */
double kvad_ceiling_read(const struct kvad_ceiling *ceiling);
/** Operations per second in float32, two for each multiply-add. */
double kvad_ceiling_fma(const struct kvad_ceiling *ceiling);
/** The same for products of 8-bit integers; 0 where the level has no instruction for them. */
double kvad_ceiling_dot(const struct kvad_ceiling *ceiling);

#endif
