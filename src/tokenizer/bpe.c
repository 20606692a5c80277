#include "tokenizer/bpe.h"

#include <string.h>

#include "base/error.h"
#include "tokenizer/vocab.h"

enum {
    SHORT_PIECE = 48 /* bytes up to which scanning beats the heap; nearly every piece of a text */
};

enum kvad_status kvad_bpe_init(struct kvad_bpe *bpe, struct kvad_heap *heap, uint32_t n_merges,
                               struct kvad_error *err) {
    *bpe = (struct kvad_bpe){.heap = heap, .n_merges = n_merges, .n_slots = 16};
    memset(bpe->byte_ids, 0xff, sizeof bpe->byte_ids);
    while (bpe->n_slots / 2 < n_merges)
        bpe->n_slots *= 2;
    bpe->pairs = kvad_alloc_zero(heap, bpe->n_slots, sizeof *bpe->pairs);
    bpe->merged = kvad_alloc_zero(heap, n_merges, sizeof *bpe->merged);
    if (!bpe->pairs || !bpe->merged)
        return kvad_fail_memory(err, "the merges",
                                bpe->n_slots * sizeof *bpe->pairs + n_merges * sizeof *bpe->merged);
    for (uint32_t i = 0; i < bpe->n_slots; i++)
        bpe->pairs[i].rank = KVAD_BPE_NO_RANK;
    return KVAD_OK;
}

void kvad_bpe_deinit(struct kvad_bpe *bpe) {
    if (!bpe->heap) return;
    kvad_free(bpe->heap, bpe->pairs, bpe->n_slots * sizeof *bpe->pairs);
    kvad_free(bpe->heap, bpe->merged, bpe->n_merges * sizeof *bpe->merged);
    *bpe = (struct kvad_bpe){0};
}

void kvad_bpe_scratch_free(struct kvad_bpe_scratch *scratch, struct kvad_heap *heap) {
    kvad_free(heap, scratch->memory, scratch->size);
    *scratch = (struct kvad_bpe_scratch){0};
}

/* Where a pair is or would be: the finaliser of MurmurHash3 over both ids. */
static uint32_t pair_hash(uint32_t left, uint32_t right) {
    uint64_t h = (uint64_t)left << 32 | right;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h ^ h >> 33);
}

enum kvad_bpe_add kvad_bpe_add(struct kvad_bpe *bpe, uint32_t left, uint32_t right,
                               uint32_t merged) {
    uint32_t mask = bpe->n_slots - 1, at = pair_hash(left, right);
    for (int i = 0; i < KVAD_MAX_PROBES; i++) {
        struct kvad_bpe_pair *pair = &bpe->pairs[at++ & mask];
        if (pair->rank == KVAD_BPE_NO_RANK) {
            *pair = (struct kvad_bpe_pair){left, right, bpe->n_added};
            bpe->merged[bpe->n_added++] = merged;
            return KVAD_BPE_ADDED;
        }
        if (pair->left == left && pair->right == right) return KVAD_BPE_DUPLICATE;
    }
    return KVAD_BPE_COLLISIONS;
}

/* Every key was put in by kvad_bpe_add() and half of the slots are empty: this ends. */
static uint32_t rank_of(const struct kvad_bpe *bpe, uint32_t left, uint32_t right) {
    uint32_t mask = bpe->n_slots - 1, at = pair_hash(left, right);
    for (;; at++) {
        const struct kvad_bpe_pair *pair = &bpe->pairs[at & mask];
        if (pair->rank == KVAD_BPE_NO_RANK) return KVAD_BPE_NO_RANK;
        if (pair->left == left && pair->right == right) return pair->rank;
    }
}

/* ids[i] and ranks[i], the rank of (ids[i], ids[i + 1]), in two arrays that shrink. */
static void encode_short(const struct kvad_bpe *bpe, const char *piece, size_t size,
                         struct kvad_id_sink *sink) {
    uint32_t ids[SHORT_PIECE], ranks[SHORT_PIECE];
    size_t n = size;
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)bpe->byte_ids[(unsigned char)piece[i]];
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = rank_of(bpe, ids[i], ids[i + 1]);
    for (;;) {
        size_t best = 0;
        uint32_t rank = KVAD_BPE_NO_RANK;
        for (size_t i = 0; i + 1 < n; i++) {
            if (ranks[i] >= rank) continue;
            rank = ranks[i];
            best = i;
        }
        if (rank == KVAD_BPE_NO_RANK) break;
        n--;
        ids[best] = bpe->merged[rank];
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        memmove(ranks + best, ranks + best + 1, (n - best - 1) * sizeof *ranks);
        if (best + 1 < n) ranks[best] = rank_of(bpe, ids[best], ids[best + 1]);
        if (best > 0) ranks[best - 1] = rank_of(bpe, ids[best - 1], ids[best]);
    }
    for (size_t i = 0; i < n; i++)
        kvad_id_push(sink, ids[i]);
}

/* A node per byte of the piece, a list of those that still begin a token. */
struct node {
    uint32_t id, prev, next;
    uint32_t rank; /* of (this, next); KVAD_BPE_NO_RANK also for nodes that are gone */
};

/* A binary heap of rank << 32 | place: lowest rank first, leftmost first. Entries whose node has
 * another rank by now are stale and are dropped when they come up, so at most two live pushes per
 * merge: never more than 2 * size entries. */
struct heap {
    uint64_t *entries;
    size_t n;
};

static void sift_down(struct heap *heap, size_t at) {
    uint64_t entry = heap->entries[at];
    for (size_t child; (child = 2 * at + 1) < heap->n; at = child) {
        if (child + 1 < heap->n && heap->entries[child + 1] < heap->entries[child]) child++;
        if (heap->entries[child] >= entry) break;
        heap->entries[at] = heap->entries[child];
    }
    heap->entries[at] = entry;
}

static void push(struct heap *heap, uint64_t entry) {
    size_t at = heap->n++;
    for (; at > 0 && heap->entries[(at - 1) / 2] > entry; at = (at - 1) / 2)
        heap->entries[at] = heap->entries[(at - 1) / 2];
    heap->entries[at] = entry;
}

static uint64_t pop(struct heap *heap) {
    uint64_t top = heap->entries[0];
    heap->entries[0] = heap->entries[--heap->n];
    sift_down(heap, 0);
    return top;
}

static enum kvad_status reserve(struct kvad_bpe_scratch *scratch, struct kvad_heap *heap,
                                size_t size, struct kvad_error *err) {
    size_t bytes;
    if (!kvad_mul_size(size, sizeof(struct node) + 2 * sizeof(uint64_t), &bytes))
        return kvad_fail_memory(err, "merging a long piece", SIZE_MAX);
    if (bytes <= scratch->size) return KVAD_OK;
    kvad_free(heap, scratch->memory, scratch->size);
    scratch->size = 0;
    scratch->memory = kvad_alloc(heap, bytes);
    if (!scratch->memory) return kvad_fail_memory(err, "merging a long piece", bytes);
    scratch->size = bytes;
    return KVAD_OK;
}

/* Nodes and heap of a piece before the first merge. */
static void fill(const struct kvad_bpe *bpe, const char *piece, size_t size, struct node *nodes,
                 struct heap *heap) {
    for (size_t i = 0; i < size; i++)
        nodes[i] = (struct node){(uint32_t)bpe->byte_ids[(unsigned char)piece[i]], (uint32_t)i - 1,
                                 (uint32_t)i + 1, KVAD_BPE_NO_RANK};
    for (size_t i = 0; i + 1 < size; i++) {
        nodes[i].rank = rank_of(bpe, nodes[i].id, nodes[i + 1].id);
        if (nodes[i].rank != KVAD_BPE_NO_RANK)
            heap->entries[heap->n++] = (uint64_t)nodes[i].rank << 32 | i;
    }
    for (size_t i = heap->n / 2; i-- > 0;)
        sift_down(heap, i);
}

/* The pair that begins at node `at` is new: rank it and, if it can be merged, queue it. */
static void renew(const struct kvad_bpe *bpe, struct node *nodes, size_t size, struct heap *heap,
                  uint32_t at) {
    struct node *node = &nodes[at];
    node->rank =
        node->next < size ? rank_of(bpe, node->id, nodes[node->next].id) : KVAD_BPE_NO_RANK;
    if (node->rank != KVAD_BPE_NO_RANK) push(heap, (uint64_t)node->rank << 32 | at);
}

static void merge_all(const struct kvad_bpe *bpe, struct node *nodes, size_t size,
                      struct heap *heap, uint64_t *n_steps) {
    for (; heap->n > 0; ++*n_steps) {
        uint64_t entry = pop(heap);
        uint32_t rank = (uint32_t)(entry >> 32), at = (uint32_t)entry;
        struct node *node = &nodes[at];
        if (node->rank != rank) continue;
        struct node *right = &nodes[node->next];
        node->id = bpe->merged[rank];
        node->next = right->next;
        right->rank = KVAD_BPE_NO_RANK;
        if (node->next < size) nodes[node->next].prev = at;
        renew(bpe, nodes, size, heap, at);
        if (at > 0) renew(bpe, nodes, size, heap, node->prev);
    }
}

static enum kvad_status encode_long(const struct kvad_bpe *bpe, const char *piece, size_t size,
                                    struct kvad_bpe_scratch *scratch, struct kvad_id_sink *sink,
                                    struct kvad_error *err) {
    KVAD_TRY(reserve(scratch, bpe->heap, size, err));
    struct node *nodes = scratch->memory;
    struct heap heap = {(uint64_t *)(void *)(nodes + size), 0};
    fill(bpe, piece, size, nodes, &heap);
    merge_all(bpe, nodes, size, &heap, &scratch->n_steps);
    for (size_t i = 0; i < size; i = nodes[i].next)
        kvad_id_push(sink, nodes[i].id);
    return KVAD_OK;
}

enum kvad_status kvad_bpe_encode(const struct kvad_bpe *bpe, const char *piece, size_t size,
                                 size_t offset, struct kvad_bpe_scratch *scratch,
                                 struct kvad_id_sink *sink, struct kvad_error *err) {
    if (size > INT32_MAX)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "the text has a run of %zu bytes without a cut at offset %zu; at most "
                         "2^31 - 1 can be merged",
                         size, offset);
    for (size_t i = 0; i < size; i++)
        if (bpe->byte_ids[(unsigned char)piece[i]] < 0)
            return kvad_fail(err, KVAD_ERR_ARGUMENT,
                             "byte 0x%02X at offset %zu of the text has no token in this "
                             "vocabulary; remove it or use the tokenizer of another model",
                             (unsigned char)piece[i], offset + i);
    if (size > SHORT_PIECE) return encode_long(bpe, piece, size, scratch, sink, err);
    encode_short(bpe, piece, size, sink);
    return KVAD_OK;
}
