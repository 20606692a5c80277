/* A heap that fails its k-th allocation and counts what is alive. */
#ifndef KVAD_TEST_FAILING_HEAP_H
#define KVAD_TEST_FAILING_HEAP_H

#include <stdlib.h>

#include "base/alloc.h"

struct failing_heap {
    struct kvad_heap heap;
    size_t fail_at, n_calls; /* the call of this number (from 1) fails; 0: none */
    size_t n_live;
};

static inline void *failing_heap_allocate(void *user, size_t size, size_t alignment) {
    struct failing_heap *h = user;
    void *memory = NULL;
    if (++h->n_calls == h->fail_at) return NULL;
    if (posix_memalign(&memory, alignment, size) != 0) return NULL;
    h->n_live++;
    return memory;
}

static inline void failing_heap_release(void *user, void *memory, size_t size) {
    struct failing_heap *h = user;
    (void)size;
    h->n_live--;
    free(memory);
}

static inline void failing_heap_init(struct failing_heap *h, size_t fail_at) {
    *h = (struct failing_heap){.fail_at = fail_at};
    struct kvad_allocator hook = {failing_heap_allocate, failing_heap_release, h};
    kvad_heap_init(&h->heap, &hook);
}

#endif
