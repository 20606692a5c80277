/* An allocator for tests: counts, and fails at one allocation. Any thread. */
#ifndef KVAD_TESTS_TOKENIZER_HOOK_H
#define KVAD_TESTS_TOKENIZER_HOOK_H

#include <stdatomic.h>
#include <stdlib.h>

#include "kvad/kvad.h"

struct hook {
    struct kvad_allocator allocator;
    _Atomic size_t n_calls, bytes, peak;
    size_t fail_at; /* number of the call that fails, from 1; 0: none */
};

static inline void *hook_allocate(void *user, size_t size, size_t alignment) {
    struct hook *hook = user;
    void *memory = NULL;
    if (atomic_fetch_add(&hook->n_calls, 1) + 1 == hook->fail_at) return NULL;
    if (posix_memalign(&memory, alignment, size) != 0) return NULL;
    size_t now = atomic_fetch_add(&hook->bytes, size) + size;
    if (now > atomic_load(&hook->peak)) atomic_store(&hook->peak, now);
    return memory;
}

static inline void hook_release(void *user, void *memory, size_t size) {
    struct hook *hook = user;
    atomic_fetch_sub(&hook->bytes, size);
    free(memory);
}

static inline void hook_init(struct hook *hook, size_t fail_at) {
    hook->allocator = (struct kvad_allocator){hook_allocate, hook_release, hook};
    atomic_init(&hook->n_calls, 0);
    atomic_init(&hook->bytes, 0);
    atomic_init(&hook->peak, 0);
    hook->fail_at = fail_at;
}

#endif
