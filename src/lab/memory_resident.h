/* Which pages of this process are in memory, and whose they are: /proc/self/smaps says which ranges
 * there are and how much of each is resident, /proc/self/pagemap which pages. */
#ifndef KVAD_LAB_MEMORY_RESIDENT_H
#define KVAD_LAB_MEMORY_RESIDENT_H

#include "lab/memory_ledger.h"

struct memory_resident {
    struct kvad_heap *heap;
    int pagemap; /* descriptor, or -1 */
    size_t page_bytes;
    char *text; /* [capacity] of smaps */
    size_t size, capacity;
    uint64_t *entries; /* [PAGEMAP_ENTRIES] of pagemap */
};

/** Open; `heap` is the lab's. Where the kernel shows nothing, or a sanitizer's own memory would
 * drown ours, *why says so and the reader is not usable. KVAD_ERR_NO_MEMORY.
 * memory_resident_close() follows in any case. */
enum kvad_status memory_resident_open(struct memory_resident *reader, struct kvad_heap *heap,
                                      const char **why, struct kvad_error *err);
/** A zeroed reader is allowed. */
void memory_resident_close(struct memory_resident *reader);

/** Add the resident bytes of each piece (sorted, none overlaps another) to its owner in
 * `owners`, those beside them to KVAD_MEMORY_ROUNDING, _MALLOC, _STACKS and _PROGRAM; *resident is
 * the kernel's own sum. KVAD_ERR_IO, KVAD_ERR_NO_MEMORY. */
enum kvad_status memory_resident_read(struct memory_resident *reader,
                                      const struct memory_piece *pieces, size_t n,
                                      uint64_t owners[KVAD_MEMORY_OWNERS], uint64_t *resident,
                                      struct kvad_error *err);

#endif
