#include "test_heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* In front of every piece: its size, to compare with what comes back. */
struct header {
    size_t size, mapped; /* mapped: bytes of the mapping, 0: from malloc */
    unsigned char *start;
    size_t magic;
};

static const size_t MAGIC = 0x6b766164;
/* From this size on the pages are mapped untouched, so that a test can have a pool of many
 * gigabytes of which it uses a few blocks. */
static const size_t HUGE_SIZE = (size_t)1 << 30;

static void *give(unsigned char *start, size_t mapped, size_t size, size_t alignment) {
    size_t offset = (sizeof(struct header) + alignment - 1) / alignment * alignment;
    unsigned char *memory = start + offset;
    struct header header = {.size = size, .mapped = mapped, .start = start, .magic = MAGIC};
    memcpy(memory - sizeof header, &header, sizeof header);
    return memory;
}

static void *allocate(void *user, size_t size, size_t alignment) {
    struct test_heap *heap = user;
    size_t n = atomic_fetch_add(&heap->n_requests, 1) + 1;
    if (heap->fail_first && n >= heap->fail_first && n <= heap->fail_last) return NULL;
    if (alignment < 64) alignment = 64;
    size_t wanted = (size + 2 * alignment + sizeof(struct header)) / alignment * alignment;
    size_t mapped = size >= HUGE_SIZE ? wanted : 0;
    unsigned char *start;
    if (mapped) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *pages = mmap(NULL, mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
        start = pages == MAP_FAILED ? NULL : pages;
    } else {
        start = aligned_alloc(alignment, wanted);
        if (start) memset(start, 0xff, wanted);
    }
    if (!start) return NULL;
    atomic_fetch_add(&heap->n_live, 1);
    atomic_fetch_add(&heap->n_bytes, size);
    return give(start, mapped, size, alignment);
}

static void release(void *user, void *memory, size_t size) {
    struct test_heap *heap = user;
    if (!memory) return;
    struct header header;
    memcpy(&header, (unsigned char *)memory - sizeof header, sizeof header);
    if (header.magic != MAGIC || header.size != size) {
        fprintf(stderr, "released %zu bytes of a piece of %zu\n", size, header.size);
        abort();
    }
    atomic_fetch_sub(&heap->n_live, 1);
    atomic_fetch_sub(&heap->n_bytes, size);
    if (header.mapped) {
        munmap(header.start, header.mapped);
        return;
    }
    memset(memory, 0xff, size);
    free(header.start);
}

struct kvad_allocator test_heap_hook(struct test_heap *heap) {
    return (struct kvad_allocator){.allocate = allocate, .release = release, .user = heap};
}

void test_heap_fail(struct test_heap *heap, size_t first, size_t last) {
    atomic_store(&heap->n_requests, 0);
    heap->fail_first = first;
    heap->fail_last = last;
}
