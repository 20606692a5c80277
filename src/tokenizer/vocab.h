/* The pieces of a vocabulary: id -> bytes by an array, bytes -> id by a hash table.
 *
 *   pool    all bytes of all pieces, one after the other
 *   pieces  [n_ids] where a piece lies in the pool; ids without a piece have size 0
 *   slots   [n_slots] open addressing, linear probing: id + 1, or 0
 *
 * Filled once at open, then immutable: any number of threads may read. */
#ifndef KVAD_TOKENIZER_VOCAB_H
#define KVAD_TOKENIZER_VOCAB_H

#include "base/alloc.h"

/* A probe sequence longer than this means keys that were chosen to collide: no honest file at load
 * <= 1/2 comes near it. It bounds the time of a hostile file to a multiple of its size. */
enum { KVAD_MAX_PROBES = 1024 };

struct kvad_piece {
    uint32_t offset, size;
};

struct kvad_vocab {
    struct kvad_heap *heap;
    char *pool;
    uint32_t pool_size, pool_used;
    struct kvad_piece *pieces;
    uint32_t n_ids, n_slots;
    uint32_t *slots;
    uint32_t longest; /* bytes of the longest piece */
};

/** Room for ids [0, n_ids) and `n_bytes` bytes in all. On failure the vocab may be half built:
 * deinit it. `heap` stays borrowed. */
enum kvad_status kvad_vocab_init(struct kvad_vocab *vocab, struct kvad_heap *heap, uint32_t n_ids,
                                 uint32_t n_bytes, struct kvad_error *err);
void kvad_vocab_deinit(struct kvad_vocab *vocab);

/** Unused room in the pool, for bytes that kvad_vocab_set() is to take in place. */
char *kvad_vocab_room(struct kvad_vocab *vocab);
/** Give `id` the piece bytes[0..size), copied to the pool unless it lies at kvad_vocab_room().
 * False if the id has a piece already, or the bytes do not fit the room asked for at init. */
bool kvad_vocab_set(struct kvad_vocab *vocab, uint32_t id, const char *bytes, size_t size);
/** Make the piece of `id` findable. False if another id has the same bytes, or on KVAD_MAX_PROBES.
 */
bool kvad_vocab_index(struct kvad_vocab *vocab, uint32_t id);

/** The id of these bytes, or -1. */
int32_t kvad_vocab_find(const struct kvad_vocab *vocab, const char *bytes, size_t size);

static inline const char *kvad_vocab_bytes(const struct kvad_vocab *vocab, uint32_t id) {
    return vocab->pool + vocab->pieces[id].offset;
}

#endif
