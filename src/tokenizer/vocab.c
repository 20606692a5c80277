#include "tokenizer/vocab.h"

#include <string.h>
#include <xxhash.h>

#include "base/error.h"

/* Power of two at least twice n, so that probe sequences stay short. */
static uint32_t slots_for(uint32_t n) {
    uint32_t slots = 16;
    while (slots / 2 < n)
        slots *= 2;
    return slots;
}

enum kvad_status kvad_vocab_init(struct kvad_vocab *vocab, struct kvad_heap *heap, uint32_t n_ids,
                                 uint32_t n_bytes, struct kvad_error *err) {
    *vocab = (struct kvad_vocab){.heap = heap, .pool_size = n_bytes, .n_ids = n_ids};
    vocab->n_slots = slots_for(n_ids);
    vocab->pool = kvad_alloc(heap, n_bytes);
    vocab->pieces = kvad_alloc_zero(heap, n_ids, sizeof *vocab->pieces);
    vocab->slots = kvad_alloc_zero(heap, vocab->n_slots, sizeof *vocab->slots);
    if (!vocab->pool || !vocab->pieces || !vocab->slots)
        return kvad_fail_memory(err, "the vocabulary",
                                n_bytes + n_ids * sizeof *vocab->pieces +
                                    vocab->n_slots * sizeof *vocab->slots);
    return KVAD_OK;
}

void kvad_vocab_deinit(struct kvad_vocab *vocab) {
    if (!vocab->heap) return;
    kvad_free(vocab->heap, vocab->pool, vocab->pool_size);
    kvad_free(vocab->heap, vocab->pieces, vocab->n_ids * sizeof *vocab->pieces);
    kvad_free(vocab->heap, vocab->slots, vocab->n_slots * sizeof *vocab->slots);
    *vocab = (struct kvad_vocab){0};
}

char *kvad_vocab_room(struct kvad_vocab *vocab) {
    return vocab->pool + vocab->pool_used;
}

bool kvad_vocab_set(struct kvad_vocab *vocab, uint32_t id, const char *bytes, size_t size) {
    struct kvad_piece *piece = &vocab->pieces[id];
    if (piece->size || size == 0 || size > vocab->pool_size - vocab->pool_used) return false;
    char *place = kvad_vocab_room(vocab);
    if (bytes != place) memcpy(place, bytes, size);
    *piece = (struct kvad_piece){vocab->pool_used, (uint32_t)size};
    vocab->pool_used += (uint32_t)size;
    if (piece->size > vocab->longest) vocab->longest = piece->size;
    return true;
}

static bool same_bytes(const struct kvad_vocab *vocab, uint32_t id, const char *bytes,
                       size_t size) {
    return vocab->pieces[id].size == size && memcmp(kvad_vocab_bytes(vocab, id), bytes, size) == 0;
}

/* The slot that holds these bytes, or the empty one where they would go; NULL after too many. */
static uint32_t *probe(const struct kvad_vocab *vocab, const char *bytes, size_t size) {
    uint32_t mask = vocab->n_slots - 1, at = (uint32_t)XXH3_64bits(bytes, size);
    for (int i = 0; i < KVAD_MAX_PROBES; i++) {
        uint32_t *slot = &vocab->slots[at++ & mask];
        if (*slot == 0 || same_bytes(vocab, *slot - 1, bytes, size)) return slot;
    }
    return NULL;
}

bool kvad_vocab_index(struct kvad_vocab *vocab, uint32_t id) {
    uint32_t *slot = probe(vocab, kvad_vocab_bytes(vocab, id), vocab->pieces[id].size);
    if (!slot || *slot) return false;
    *slot = id + 1;
    return true;
}

int32_t kvad_vocab_find(const struct kvad_vocab *vocab, const char *bytes, size_t size) {
    const uint32_t *slot = probe(vocab, bytes, size);
    return slot ? (int32_t)*slot - 1 : -1;
}
