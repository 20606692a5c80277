/* A fixed pool of KV blocks shared by all sequences: one reservation, reference counts, a free
 * list.
 *
 * Not thread-safe: owned by the engine. acquire and release are O(1) and never allocate. */
#ifndef KVAD_KV_POOL_H
#define KVAD_KV_POOL_H

#include "kv/shape.h"

struct kvad_kv_pool {
    struct kvad_heap *heap;
    unsigned char *blocks; /* [n_blocks][block_bytes] */
    size_t n_blocks, block_bytes;
    uint32_t *references; /* [n_blocks]; 0: free */
    uint32_t *free_ids;   /* [n_free] stack of free blocks, lowest id on top at first */
    size_t n_free;
};

/** Reserve `n_blocks` blocks (1 to UINT32_MAX) from `heap`. KVAD_ERR_NO_MEMORY; then the pool is
 * empty and may be deinit'ed. */
enum kvad_status kvad_kv_pool_init(struct kvad_kv_pool *pool, const struct kvad_kv_shape *shape,
                                   size_t n_blocks, struct kvad_heap *heap, struct kvad_error *err);
void kvad_kv_pool_deinit(struct kvad_kv_pool *pool);

/** Take a free block with one reference; false: none is free. */
bool kvad_kv_pool_acquire(struct kvad_kv_pool *pool, uint32_t *block);
/** Give one reference back; the last one frees the block. */
void kvad_kv_pool_release(struct kvad_kv_pool *pool, uint32_t block);

/** Whether every block is either free once or referenced: the pool's invariant. O(n), for tests. */
bool kvad_kv_pool_is_sound(const struct kvad_kv_pool *pool);

#endif
