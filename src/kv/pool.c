#include "kv/pool.h"

#include <assert.h>

#include "base/error.h"

enum kvad_status kvad_kv_pool_init(struct kvad_kv_pool *pool, const struct kvad_kv_shape *shape,
                                   size_t n_blocks, struct kvad_heap *heap,
                                   struct kvad_error *err) {
    *pool = (struct kvad_kv_pool){.heap = heap, .block_bytes = shape->block_bytes};
    size_t bytes;
    if (n_blocks < 1 || n_blocks > UINT32_MAX)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "a pool of %zu KV blocks: must be 1 to %u",
                         n_blocks, UINT32_MAX);
    if (!kvad_mul_size(n_blocks, pool->block_bytes, &bytes))
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "%zu KV blocks of %zu bytes are too many",
                         n_blocks, pool->block_bytes);
    pool->n_blocks = n_blocks;
    pool->blocks = kvad_alloc(heap, bytes);
    pool->references = kvad_alloc_zero(heap, n_blocks, sizeof *pool->references);
    pool->free_ids = kvad_alloc_zero(heap, n_blocks, sizeof *pool->free_ids);
    if (!pool->blocks || !pool->references || !pool->free_ids) {
        kvad_kv_pool_deinit(pool);
        return kvad_fail_memory(err, "KV pool", bytes);
    }
    for (size_t i = 0; i < n_blocks; i++)
        pool->free_ids[i] = (uint32_t)(n_blocks - 1 - i);
    pool->n_free = n_blocks;
    return KVAD_OK;
}

void kvad_kv_pool_deinit(struct kvad_kv_pool *pool) {
    kvad_free(pool->heap, pool->blocks, pool->n_blocks * pool->block_bytes);
    kvad_free(pool->heap, pool->references, pool->n_blocks * sizeof *pool->references);
    kvad_free(pool->heap, pool->free_ids, pool->n_blocks * sizeof *pool->free_ids);
    *pool = (struct kvad_kv_pool){.heap = pool->heap};
}

bool kvad_kv_pool_acquire(struct kvad_kv_pool *pool, uint32_t *block) {
    if (pool->n_free == 0) return false;
    *block = pool->free_ids[--pool->n_free];
    pool->references[*block] = 1;
    return true;
}

void kvad_kv_pool_release(struct kvad_kv_pool *pool, uint32_t block) {
    assert(block < pool->n_blocks && pool->references[block] > 0);
    if (--pool->references[block] == 0) pool->free_ids[pool->n_free++] = block;
}

bool kvad_kv_pool_is_sound(const struct kvad_kv_pool *pool) {
    size_t n_referenced = 0;
    for (size_t i = 0; i < pool->n_blocks; i++)
        n_referenced += pool->references[i] > 0;
    if (n_referenced + pool->n_free != pool->n_blocks) return false;
    for (size_t i = 0; i < pool->n_free; i++) {
        uint32_t id = pool->free_ids[i];
        if (id >= pool->n_blocks || pool->references[id] != 0) return false;
        for (size_t j = 0; j < i; j++)
            if (pool->free_ids[j] == id) return false;
    }
    return true;
}
