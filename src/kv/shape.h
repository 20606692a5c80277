/* Where a key and a value lie inside a KV block: pure arithmetic, no memory.
 *
 *   block = for each layer   K [n_kv_heads][B / 16][head_dim][16]     16-token tiles: scores have
 * lanes across tokens V [n_kv_heads][B][head_dim]
 *
 * All layers of B tokens are one piece of memory, so that one block is one thing to share, hash,
 * copy or save. Nothing is padded: bytes = B * n_layers * n_kv_heads * 2 * head_dim * 4. */
#ifndef KVAD_KV_SHAPE_H
#define KVAD_KV_SHAPE_H

#include "base/alloc.h"
#include "kernels/kernels.h"

struct kvad_kv_shape {
    size_t n_layers, n_kv_heads, head_dim;
    size_t block_tokens; /* B: a multiple of 16 that divides KVAD_CHUNK */
    size_t head_floats;  /* B * head_dim: K (or V) of one head in one layer */
    size_t layer_floats; /* K and V of one layer */
    size_t block_floats; /* the whole block */
};

/** Fill a shape; KVAD_ERR_ARGUMENT for a block size that is not 16, 32, 64, 128 or 256, or sizes
 * whose product overflows. */
enum kvad_status kvad_kv_shape_init(struct kvad_kv_shape *shape, size_t n_layers, size_t n_kv_heads,
                                    size_t head_dim, size_t block_tokens, struct kvad_error *err);

/** Bytes of one token in all layers: 2 * n_layers * n_kv_heads * head_dim * 4. */
static inline size_t kvad_kv_token_bytes(const struct kvad_kv_shape *shape) {
    return shape->block_floats / shape->block_tokens * sizeof(float);
}
static inline size_t kvad_kv_block_bytes(const struct kvad_kv_shape *shape) {
    return shape->block_floats * sizeof(float);
}
/** Blocks that `tokens` tokens need. */
static inline size_t kvad_kv_blocks_for(const struct kvad_kv_shape *shape, size_t tokens) {
    return tokens / shape->block_tokens + (tokens % shape->block_tokens != 0);
}

/** Start of the K tiles and of the V rows of one head in one layer, in floats from the block's
 * start. */
static inline size_t kvad_kv_k_offset(const struct kvad_kv_shape *shape, size_t layer,
                                      size_t head) {
    return layer * shape->layer_floats + head * shape->head_floats;
}
static inline size_t kvad_kv_v_offset(const struct kvad_kv_shape *shape, size_t layer,
                                      size_t head) {
    return layer * shape->layer_floats + (shape->n_kv_heads + head) * shape->head_floats;
}
/** Element d of token t (in [0, B)) inside the K tiles; V is simply t * head_dim + d. */
static inline size_t kvad_kv_k_index(const struct kvad_kv_shape *shape, size_t t, size_t d) {
    return (t / KVAD_KV_TILE * shape->head_dim + d) * KVAD_KV_TILE + t % KVAD_KV_TILE;
}

#endif
