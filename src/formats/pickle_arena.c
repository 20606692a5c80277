#include "formats/pickle_arena.h"

enum { CHUNK_MIN = 1024, CHUNK_MAX = 1 << 20, UNIT = 8 };

struct kvad_arena_chunk {
    struct kvad_arena_chunk *next;
    size_t size, used; /* of what follows the header */
};

void *kvad_arena_alloc(struct kvad_arena *arena, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size = kvad_round_up(size, UNIT);
    struct kvad_arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < size) {
        /* Growing with the use keeps small files small and large ones cheap. */
        size_t room = kvad_min_size(arena->used, CHUNK_MAX);
        if (room < CHUNK_MIN) room = CHUNK_MIN;
        if (room < size) room = size;
        chunk = kvad_alloc(arena->heap, sizeof *chunk + room);
        if (!chunk) return NULL;
        *chunk = (struct kvad_arena_chunk){arena->chunks, room, 0};
        arena->chunks = chunk;
    }
    void *memory = (unsigned char *)(chunk + 1) + chunk->used;
    chunk->used += size;
    arena->used += size;
    return memory;
}

void kvad_arena_free(struct kvad_arena *arena) {
    while (arena->chunks) {
        struct kvad_arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        kvad_free(arena->heap, chunk, sizeof *chunk + chunk->size);
    }
    arena->used = 0;
}
