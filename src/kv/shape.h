/* Where a key and a value lie inside a KV block: pure arithmetic, no memory.
 *
 *   block = for each layer, for each kv head   K: tiles [B / 16][head_dim][16]
 *                                              V: rows  [B][head_dim]
 *
 * In a tile 16 tokens lie side by side, so that their scores are 16 lanes. Each of K and V in its
 * own type; Q8 is followed by a float32 scale per token [B]. K and V of a head are neighbours: one
 * worker reads both, so what the CPU fetches beyond the end of K is of use
 * (docs/decisions/0008-k-and-v-of-a-head-are-one-piece.md). All layers of B tokens are one piece of
 * memory, so that one block is one thing to share, hash, copy or save.
 * Nothing is padded: bytes = B * n_layers * n_kv_heads * (row_bytes(K) + row_bytes(V)). */
#ifndef KVAD_KV_SHAPE_H
#define KVAD_KV_SHAPE_H

#include "base/alloc.h"
#include "kernels/kernels.h"

struct kvad_kv_shape {
    size_t n_layers, n_kv_heads, head_dim;
    size_t block_tokens; /* B: a multiple of 16 that divides KVAD_CHUNK */
    enum kvad_kv_type k_type, v_type;
    size_t k_head_bytes; /* K of one head in one layer */
    size_t head_bytes;   /* K and V of it */
    size_t layer_bytes;  /* of all heads */
    size_t block_bytes;  /* the whole block */
};

/** Fill a shape from its first six fields; KVAD_ERR_ARGUMENT for a block size that is not 16, 32,
 * 64, 128 or 256, an unknown type, or sizes whose product overflows. */
enum kvad_status kvad_kv_shape_init(struct kvad_kv_shape *shape, struct kvad_error *err);

/** Bytes of one token and head: 4, 2 or 1 per element, and a scale with Q8. */
size_t kvad_kv_row_bytes(enum kvad_kv_type type, size_t head_dim);

/** Bytes of one token in all layers, K and V. */
static inline size_t kvad_kv_token_bytes(const struct kvad_kv_shape *shape) {
    return shape->block_bytes / shape->block_tokens;
}
/** Blocks that `tokens` tokens need. */
static inline size_t kvad_kv_blocks_for(const struct kvad_kv_shape *shape, size_t tokens) {
    return tokens / shape->block_tokens + (tokens % shape->block_tokens != 0);
}

/** Start of the K tiles and of the V rows of one head in one layer, in bytes from the block's
 * start. */
static inline size_t kvad_kv_k_offset(const struct kvad_kv_shape *shape, size_t layer,
                                      size_t head) {
    return layer * shape->layer_bytes + head * shape->head_bytes;
}
static inline size_t kvad_kv_v_offset(const struct kvad_kv_shape *shape, size_t layer,
                                      size_t head) {
    return kvad_kv_k_offset(shape, layer, head) + shape->k_head_bytes;
}
/** Start of the scales of a head whose type is Q8, in bytes from the start of its tiles or rows. */
static inline size_t kvad_kv_scales_offset(const struct kvad_kv_shape *shape) {
    return shape->block_tokens * shape->head_dim;
}
/** Element d of token t (in [0, B)) inside the K tiles; inside the V rows it is t * head_dim + d.
 */
static inline size_t kvad_kv_k_index(const struct kvad_kv_shape *shape, size_t t, size_t d) {
    return (t / KVAD_KV_TILE * shape->head_dim + d) * KVAD_KV_TILE + t % KVAD_KV_TILE;
}

#endif
