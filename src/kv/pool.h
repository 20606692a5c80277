/* A fixed pool of KV blocks shared by all sequences: one reservation, reference counts, and an
 * order in which blocks are given out again.
 *
 *                 acquire                      release of the last reference
 *     free  ------------------->  in use  ----------------------------------->  free   (not cached)
 *       ^                          |   ^                                  \-->  idle   (cached)
 *       |  evict, oldest first     |   | retain (a hit)                           |
 *       +--------------------------|---+------------------------------------------+
 *
 * Every block is in exactly one place. A cached block is one that the prefix index can find; while
 * it is, or while it has two references, nobody writes to it. A sequence gives its blocks back from
 * its tail on, so that of blocks that became idle together the tail is evicted before the head.
 *
 * Not thread-safe: owned by the engine. Every operation is O(1) and never allocates. */
#ifndef KVAD_KV_POOL_H
#define KVAD_KV_POOL_H

#include "kv/shape.h"

/* No block. A pool has at most UINT32_MAX blocks, so that no id is this one. */
#define KVAD_KV_NO_BLOCK UINT32_MAX

/* What is known of a block: all of it together, because an operation on a block needs all of it,
 * and between two operations a step has filled the CPU's caches with weights. */
struct kvad_kv_block_state {
    uint32_t references;   /* 0: free or idle */
    uint32_t older, newer; /* neighbours in the list of idle blocks */
    bool is_cached;
};

struct kvad_kv_pool {
    struct kvad_heap *heap;
    unsigned char *blocks; /* [n_blocks][block_bytes] */
    size_t n_blocks, block_bytes;
    struct kvad_kv_block_state *states; /* [n_blocks] */
    uint32_t *free_ids; /* [n_free] stack of free blocks, lowest id on top at first */
    size_t n_free;
    uint32_t idle_oldest, idle_newest; /* its ends, or KVAD_KV_NO_BLOCK */
    size_t n_idle, n_shared;           /* idle blocks; blocks with two references and more */
    uint64_t n_evictions, n_copies;    /* since the start */
    /* Called for an idle block that is about to be given out: the index forgets it and calls
     * kvad_kv_pool_set_cached(pool, block, false). Set by the index; NULL while there is none. */
    void (*forget)(void *owner, uint32_t block);
    void *owner;
};

/** Reserve `n_blocks` blocks (1 to UINT32_MAX - 1) from `heap`. KVAD_ERR_NO_MEMORY; then the pool
 * is empty and may be deinit'ed. */
enum kvad_status kvad_kv_pool_init(struct kvad_kv_pool *pool, const struct kvad_kv_shape *shape,
                                   size_t n_blocks, struct kvad_heap *heap, struct kvad_error *err);
void kvad_kv_pool_deinit(struct kvad_kv_pool *pool);

/** Blocks that acquire can give out: free ones and idle ones. */
static inline size_t kvad_kv_pool_available(const struct kvad_kv_pool *pool) {
    return pool->n_free + pool->n_idle;
}
/** Take a free block, or evict the idle one that was used least recently, with one reference;
 * false: there is none. */
bool kvad_kv_pool_acquire(struct kvad_kv_pool *pool, uint32_t *block);
/** One more reference to a block that is in use or idle. */
void kvad_kv_pool_retain(struct kvad_kv_pool *pool, uint32_t block);
/** Give one reference back; with the last one a cached block becomes idle, any other one free. */
void kvad_kv_pool_release(struct kvad_kv_pool *pool, uint32_t block);
/** Say whether the index can find a block. An idle one that it forgets becomes free. */
void kvad_kv_pool_set_cached(struct kvad_kv_pool *pool, uint32_t block, bool is_cached);

/** Whether the holder of a block may write to it: nobody else sees it. */
static inline bool kvad_kv_pool_may_write(const struct kvad_kv_pool *pool, uint32_t block) {
    return pool->states[block].references == 1 && !pool->states[block].is_cached;
}
static inline unsigned char *kvad_kv_pool_block(const struct kvad_kv_pool *pool, uint32_t block) {
    return pool->blocks + (size_t)block * pool->block_bytes;
}
/** Bytes of the tables beside the blocks. */
size_t kvad_kv_pool_table_bytes(const struct kvad_kv_pool *pool);

/** Whether every block is in exactly one place and all counts agree: the pool's invariant.
 * O(n_blocks + n_free^2), for tests. */
bool kvad_kv_pool_is_sound(const struct kvad_kv_pool *pool);

#endif
