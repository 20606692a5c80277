#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Weights and caches are read from end to end at every token: huge pages spare the walks through
 * page tables, which small pages cost (a page walk every 4 KiB). Areas smaller than two of them
 * would only waste memory. */
enum { HUGE_PAGE = 2 << 20 };

static void *default_allocate(void *user, size_t size, size_t alignment) {
    (void)user;
    void *memory = NULL;
    bool is_large = size >= 2 * (size_t)HUGE_PAGE;
    if (posix_memalign(&memory, is_large ? HUGE_PAGE : alignment, size) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    /* Advice: where it is refused, small pages do. */
    if (is_large) (void)madvise(memory, size, MADV_HUGEPAGE);
#endif
    return memory;
}

static void default_release(void *user, void *memory, size_t size) {
    (void)user;
    (void)size;
    free(memory);
}

void kvad_heap_init(struct kvad_heap *heap, const struct kvad_allocator *hook) {
    if (hook && hook->allocate && hook->release)
        heap->hook = *hook;
    else
        heap->hook = (struct kvad_allocator){default_allocate, default_release, NULL};
    atomic_init(&heap->bytes, 0);
    atomic_init(&heap->bytes_peak, 0);
    atomic_init(&heap->n_allocations, 0);
}

void *kvad_alloc(struct kvad_heap *heap, size_t size) {
    size_t real = size ? size : 1;
    void *memory = heap->hook.allocate(heap->hook.user, real, KVAD_ALIGNMENT);
    if (!memory) return NULL;
    /* Relaxed: the counters are statistics and order nothing. */
    uint64_t now = atomic_fetch_add_explicit(&heap->bytes, size, memory_order_relaxed) + size;
    uint64_t peak = atomic_load_explicit(&heap->bytes_peak, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&heap->bytes_peak, &peak, now)) {
    }
    atomic_fetch_add_explicit(&heap->n_allocations, 1, memory_order_relaxed);
    return memory;
}

void *kvad_alloc_zero(struct kvad_heap *heap, size_t n, size_t size) {
    size_t bytes;
    if (!kvad_mul_size(n, size, &bytes)) return NULL;
    void *memory = kvad_alloc(heap, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

void kvad_free(struct kvad_heap *heap, void *memory, size_t size) {
    if (!memory) return;
    heap->hook.release(heap->hook.user, memory, size ? size : 1);
    atomic_fetch_sub_explicit(&heap->bytes, size, memory_order_relaxed);
}

void *kvad_resize(struct kvad_heap *heap, void *memory, size_t old_size, size_t new_size) {
    void *fresh = kvad_alloc(heap, new_size);
    if (!fresh) return NULL;
    if (memory) memcpy(fresh, memory, kvad_min_size(old_size, new_size));
    kvad_free(heap, memory, old_size);
    return fresh;
}
