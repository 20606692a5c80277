/* Memory that is given back all at once: chunks of growing size from a heap. */
#ifndef KVAD_FORMATS_PICKLE_ARENA_H
#define KVAD_FORMATS_PICKLE_ARENA_H

#include "base/alloc.h"

struct kvad_arena_chunk;

struct kvad_arena {
    struct kvad_heap *heap;
    struct kvad_arena_chunk *chunks;
    size_t used; /* bytes handed out */
};

/** `size` uninitialised bytes aligned to 8, or NULL. At most twice what was handed out plus 1 MiB
 * is taken from the heap. */
void *kvad_arena_alloc(struct kvad_arena *arena, size_t size);
/** Free everything; a zeroed arena is allowed. */
void kvad_arena_free(struct kvad_arena *arena);

#endif
