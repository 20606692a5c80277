/* A counted heap over the caller's allocator, and checked size arithmetic. */
#ifndef KVAD_BASE_ALLOC_H
#define KVAD_BASE_ALLOC_H

#include <stdatomic.h>

#include "kvad/kvad.h"

/* Alignment of everything that kernels read: one cache line, one AVX-512 vector. */
enum { KVAD_ALIGNMENT = 64 };

/* Lives inside the object that owns the memory. Counters may be read from any thread. */
struct kvad_heap {
    struct kvad_allocator hook;
    _Atomic uint64_t bytes, bytes_peak, n_allocations;
};

/** Prepare a heap; `hook` NULL or with a NULL function means aligned malloc. */
void kvad_heap_init(struct kvad_heap *heap, const struct kvad_allocator *hook);

/** `size` uninitialised bytes aligned to KVAD_ALIGNMENT, or NULL. Size 0 gives a valid pointer.
 * Free with the same size. Any thread. */
void *kvad_alloc(struct kvad_heap *heap, size_t size);
/** The same, zeroed, for n * size bytes; NULL also when the product overflows. */
void *kvad_alloc_zero(struct kvad_heap *heap, size_t n, size_t size);
/** Give memory back; `size` is what was asked for (n * size). NULL is allowed. */
void kvad_free(struct kvad_heap *heap, void *memory, size_t size);
/** New area of `new_size` with the first min(old, new) bytes of the old one, which is freed; NULL
 * leaves the old one. */
void *kvad_resize(struct kvad_heap *heap, void *memory, size_t old_size, size_t new_size);

/** a * b and a + b into *out; false on overflow (then *out is untouched). */
static inline bool kvad_mul_size(size_t a, size_t b, size_t *out) {
    if (b != 0 && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}
static inline bool kvad_add_size(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return false;
    *out = a + b;
    return true;
}
static inline size_t kvad_round_up(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}
static inline size_t kvad_min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

#endif
