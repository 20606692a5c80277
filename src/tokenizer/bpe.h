/* Byte-pair merging: a piece of text to ids, always by the merge of lowest rank, leftmost first.
 *
 * That is the order of the Hugging Face tokenizers library; it equals OpenAI's encoder.py for every
 * merge list in which a token is made before it is used. Short pieces are merged by scanning;
 * long ones by a heap over a linked list: O(n log n) time, 32 bytes per byte of the piece, no
 * recursion. */
#ifndef KVAD_TOKENIZER_BPE_H
#define KVAD_TOKENIZER_BPE_H

#include "base/alloc.h"

struct kvad_bpe_pair {
    uint32_t left, right; /* ids */
    uint32_t rank;        /* KVAD_BPE_NO_RANK: empty slot */
};
#define KVAD_BPE_NO_RANK UINT32_MAX

/* Filled at open, then immutable. */
struct kvad_bpe {
    struct kvad_heap *heap;
    int32_t byte_ids[256];       /* -1: this byte has no token */
    struct kvad_bpe_pair *pairs; /* [n_slots] open addressing by (left, right) */
    uint32_t *merged;            /* [n_merges] by rank: the id that the merge gives */
    uint32_t n_slots, n_merges, n_added;
};

/** Room for n_merges merges. On failure the object may be half built: deinit it. */
enum kvad_status kvad_bpe_init(struct kvad_bpe *bpe, struct kvad_heap *heap, uint32_t n_merges,
                               struct kvad_error *err);
void kvad_bpe_deinit(struct kvad_bpe *bpe);

enum kvad_bpe_add { KVAD_BPE_ADDED, KVAD_BPE_DUPLICATE, KVAD_BPE_COLLISIONS };
/** Append the merge of the next rank; at most n_merges times. */
enum kvad_bpe_add kvad_bpe_add(struct kvad_bpe *bpe, uint32_t left, uint32_t right,
                               uint32_t merged);

/* Where ids go. `ids` may be shorter than the text needs: `n` counts on. */
struct kvad_id_sink {
    int32_t *ids;
    size_t capacity, n;
};

static inline void kvad_id_push(struct kvad_id_sink *sink, uint32_t id) {
    if (sink->n < sink->capacity) sink->ids[sink->n] = (int32_t)id;
    sink->n++;
}

/* Working memory of one encode call, grown as long pieces need it. Zero it to begin. */
struct kvad_bpe_scratch {
    void *memory;
    size_t size;
    uint64_t n_steps; /* heap operations so far: what tests measure growth by */
};

void kvad_bpe_scratch_free(struct kvad_bpe_scratch *scratch, struct kvad_heap *heap);

/** Encode one piece; size >= 1. KVAD_ERR_ARGUMENT if a byte has no token (`offset` is where the
 * piece begins in the caller's text) or the piece is longer than 2^31 bytes; KVAD_ERR_NO_MEMORY.
 * Ids pushed before a failure stay in the sink. */
enum kvad_status kvad_bpe_encode(const struct kvad_bpe *bpe, const char *piece, size_t size,
                                 size_t offset, struct kvad_bpe_scratch *scratch,
                                 struct kvad_id_sink *sink, struct kvad_error *err);

#endif
