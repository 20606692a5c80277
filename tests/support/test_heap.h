/* An allocator for tests: counts, checks sizes, fills what it gives and takes with NaN (so that
 * nothing works by luck of old contents), and fails where it is told to. */
#ifndef KVAD_TEST_HEAP_H
#define KVAD_TEST_HEAP_H

#include <stdatomic.h>

#include "kvad/kvad.h"

struct test_heap {
    _Atomic size_t n_live, n_bytes; /* now */
    _Atomic size_t n_requests;      /* since the start or test_heap_fail() */
    size_t fail_first;              /* number of the request that fails, from 1; 0: none */
    size_t fail_last;               /* SIZE_MAX: all after it as well */
};

/** The hook; `heap` must outlive what uses it. Zero-initialised is ready. */
struct kvad_allocator test_heap_hook(struct test_heap *heap);
/** From now on the requests `first` to `last` (counted from 1) fail; 0, 0: none. */
void test_heap_fail(struct test_heap *heap, size_t first, size_t last);

#endif
