/* One sequence's rows in the cache: a table of blocks and a length, over one of three sources of
 * memory.
 *
 *   paged    blocks come from a pool and go back to it
 *   static   one area for the whole context, reserved when the sequence is made
 *   grow     a fresh area and a full copy whenever a step appends: what concatenating tensors does
 *
 * Attention sees only the table, so all three give the same bits. Room is reserved BEFORE a step
 * and rows count only after kvad_kv_sequence_commit(), so that a failed step changes nothing.
 *
 * Paged sequences share blocks: a fork, or a text that begins like an earlier one, takes references
 * and no copies. A block that others see is copied when this sequence has to write into it
 * (Rosenblum et al., copy on write), at any token of the block, and not before.
 *
 *   table    | block 7 | block 2 | block 9 |
 *            |<---- length ---->|  rows that count
 *            |<------- n_ready ------->|  rows that are there; those beyond length hold the tokens
 *                                         that the caller says come next, and are not written again
 *
 * Not thread-safe: owned by the engine; during a step the workers read the table and write rows of
 * new tokens. */
#ifndef KVAD_KV_SEQUENCE_H
#define KVAD_KV_SEQUENCE_H

#include "kv/pool.h"

enum kvad_kv_source { KVAD_KV_PAGED, KVAD_KV_STATIC, KVAD_KV_GROW };

/* What growing has moved. */
struct kvad_kv_moves {
    uint64_t n_bytes, n_moves; /* copied in all, and how often */
    uint64_t twice_peak;       /* most bytes that were held twice at once */
};

struct kvad_kv_sequence {
    const struct kvad_kv_shape *shape; /* borrowed */
    enum kvad_kv_source source;
    struct kvad_kv_pool *pool;   /* borrowed; paged only */
    struct kvad_heap *heap;      /* borrowed; owner of the area and the table */
    size_t n_max;                /* longest length allowed, in tokens */
    unsigned char *base;         /* block i of the table begins at base + table[i] * block_bytes */
    uint32_t *table;             /* [kvad_kv_blocks_for(n_max)] */
    size_t n_blocks;             /* entries of the table in use */
    size_t n_area_blocks;        /* blocks of the own area (static, grow) */
    size_t length;               /* tokens that count */
    size_t n_ready;              /* rows that are there; at least length, more after a rewind */
    size_t n_published;          /* first blocks that are the prefix index's own */
    struct kvad_kv_moves *moves; /* borrowed; counts what grow moves; NULL: nobody does */
};

/** Make an empty sequence of at most `n_max` tokens. `pool` is needed by KVAD_KV_PAGED alone.
 * KVAD_ERR_NO_MEMORY. */
enum kvad_status kvad_kv_sequence_init(struct kvad_kv_sequence *sequence,
                                       const struct kvad_kv_shape *shape,
                                       enum kvad_kv_source source, struct kvad_kv_pool *pool,
                                       size_t n_max, struct kvad_heap *heap,
                                       struct kvad_error *err);
/** Give everything back; a zeroed sequence is allowed. */
void kvad_kv_sequence_deinit(struct kvad_kv_sequence *sequence);

/** Make room for `n_more` tokens after `length`. KVAD_ERR_CONTEXT_FULL beyond n_max,
 * KVAD_ERR_NO_BLOCKS, KVAD_ERR_NO_MEMORY; nothing has changed then. */
enum kvad_status kvad_kv_sequence_reserve(struct kvad_kv_sequence *sequence, size_t n_more,
                                          struct kvad_error *err);
/** Blocks that kvad_kv_sequence_reserve() may take from the pool, copies included; 0 for other
 * sources. */
size_t kvad_kv_sequence_blocks_needed(const struct kvad_kv_sequence *sequence, size_t n_more);
/** Give back room that was reserved and not committed. */
void kvad_kv_sequence_unreserve(struct kvad_kv_sequence *sequence);
/** The `n_more` reserved rows are written: count them. */
void kvad_kv_sequence_commit(struct kvad_kv_sequence *sequence, size_t n_more);
/** Forget tokens from `length` (at most the current one) on, and room that was reserved and not
 * committed. */
void kvad_kv_sequence_truncate(struct kvad_kv_sequence *sequence, size_t length);

/** Give an empty paged sequence the first `n_tokens` rows in the blocks of `table` (another
 * sequence's, or found by the index), with a reference to each. O(blocks), copies no rows. */
void kvad_kv_sequence_attach(struct kvad_kv_sequence *sequence, const uint32_t *table,
                             size_t n_tokens);
/** Count only the tokens before `length`, but keep the rows behind it ready: the next tokens to be
 * appended are the ones that were there. */
void kvad_kv_sequence_rewind(struct kvad_kv_sequence *sequence, size_t length);
/** Put `block` (equal, bit for bit) in the place of the i-th block. */
void kvad_kv_sequence_replace(struct kvad_kv_sequence *sequence, size_t i, uint32_t block);

/** The block that holds token `t`; O(1). */
static inline unsigned char *kvad_kv_sequence_block(const struct kvad_kv_sequence *sequence,
                                                    size_t t) {
    size_t i = t / sequence->shape->block_tokens;
    return sequence->base + (size_t)sequence->table[i] * sequence->shape->block_bytes;
}

/** Bytes of its table of blocks. */
size_t kvad_kv_sequence_table_bytes(const struct kvad_kv_sequence *sequence);
/** Bytes of cache memory that this sequence holds now, shared blocks as a whole. */
size_t kvad_kv_sequence_bytes(const struct kvad_kv_sequence *sequence);

/** Copy K and V of one layer out as floats, each [n_kv_heads][n][head_dim], of tokens [first, first
 * + n), which must be there. */
void kvad_kv_sequence_read(const struct kvad_kv_sequence *sequence, size_t layer, size_t first,
                           size_t n, float *k, float *v);

/** Spans of the tokens [first, first + n) of one layer and head for the attention kernels (scales
 * count with Q8 only); `first` is a multiple of the block size, n <= KVAD_CHUNK. Returns their
 * number, at most KVAD_CHUNK / KVAD_KV_TILE. */
size_t kvad_kv_sequence_spans(const struct kvad_kv_sequence *sequence, size_t layer, size_t head,
                              size_t first, size_t n, struct kvad_kv_span *spans);

#endif
