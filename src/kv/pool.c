#include "kv/pool.h"

#include <assert.h>

#include "base/error.h"
#include "base/faults.h"

/* ---------------------------------------------------------------- memory */

/* The arrays beside the blocks as a table. */
struct table {
    void **pointer;
    size_t size; /* of one element */
};

enum { N_TABLES = 2 };

static void list_tables(struct kvad_kv_pool *pool, struct table list[N_TABLES]) {
    list[0] = (struct table){(void **)&pool->states, sizeof *pool->states};
    list[1] = (struct table){(void **)&pool->free_ids, sizeof *pool->free_ids};
}

enum kvad_status kvad_kv_pool_init(struct kvad_kv_pool *pool, const struct kvad_kv_shape *shape,
                                   size_t n_blocks, struct kvad_heap *heap,
                                   struct kvad_error *err) {
    *pool = (struct kvad_kv_pool){.heap = heap,
                                  .block_bytes = shape->block_bytes,
                                  .idle_oldest = KVAD_KV_NO_BLOCK,
                                  .idle_newest = KVAD_KV_NO_BLOCK};
    size_t bytes;
    if (n_blocks < 1 || n_blocks >= UINT32_MAX)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "a pool of %zu KV blocks: must be 1 to %u",
                         n_blocks, UINT32_MAX - 1);
    if (!kvad_mul_size(n_blocks, pool->block_bytes, &bytes))
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "%zu KV blocks of %zu bytes are too many",
                         n_blocks, pool->block_bytes);
    pool->n_blocks = n_blocks;
    struct table list[N_TABLES];
    list_tables(pool, list);
    pool->blocks = kvad_alloc(heap, bytes);
    bool is_whole = pool->blocks != NULL;
    for (size_t i = 0; i < N_TABLES && is_whole; i++) {
        *list[i].pointer = kvad_alloc_zero(heap, n_blocks, list[i].size);
        is_whole = *list[i].pointer != NULL;
    }
    if (!is_whole) {
        kvad_kv_pool_deinit(pool);
        return kvad_fail_memory(err, "KV pool", bytes);
    }
    for (size_t i = 0; i < n_blocks; i++)
        pool->free_ids[i] = (uint32_t)(n_blocks - 1 - i);
    pool->n_free = n_blocks;
    return KVAD_OK;
}

void kvad_kv_pool_deinit(struct kvad_kv_pool *pool) {
    struct table list[N_TABLES];
    list_tables(pool, list);
    for (size_t i = 0; i < N_TABLES; i++)
        kvad_free(pool->heap, *list[i].pointer, pool->n_blocks * list[i].size);
    kvad_free(pool->heap, pool->blocks, pool->n_blocks * pool->block_bytes);
    *pool = (struct kvad_kv_pool){.heap = pool->heap};
}

size_t kvad_kv_pool_table_bytes(const struct kvad_kv_pool *pool) {
    return pool->n_blocks * (sizeof *pool->states + sizeof *pool->free_ids);
}

/* ---------------------------------------------------------------- the list of idle blocks */

static void append_idle(struct kvad_kv_pool *pool, uint32_t block) {
    pool->states[block].older = pool->idle_newest;
    pool->states[block].newer = KVAD_KV_NO_BLOCK;
    if (pool->idle_newest == KVAD_KV_NO_BLOCK)
        pool->idle_oldest = block;
    else
        pool->states[pool->idle_newest].newer = block;
    pool->idle_newest = block;
    pool->n_idle++;
}

static void remove_idle(struct kvad_kv_pool *pool, uint32_t block) {
    uint32_t older = pool->states[block].older, newer = pool->states[block].newer;
    if (older == KVAD_KV_NO_BLOCK)
        pool->idle_oldest = newer;
    else
        pool->states[older].newer = newer;
    if (newer == KVAD_KV_NO_BLOCK)
        pool->idle_newest = older;
    else
        pool->states[newer].older = older;
    pool->n_idle--;
}

/* ---------------------------------------------------------------- blocks */

/* Whether the index is told that a block is given to somebody else. */
static bool index_is_told(void) {
    return KVAD_FAULT(STALE_INDEX, true, false);
}

static void evict(struct kvad_kv_pool *pool) {
    uint32_t block = pool->idle_oldest;
    pool->n_evictions++;
    if (index_is_told()) {
        pool->forget(pool->owner, block);
        return;
    }
    remove_idle(pool, block);
    pool->free_ids[pool->n_free++] = block;
}

bool kvad_kv_pool_acquire(struct kvad_kv_pool *pool, uint32_t *block) {
    if (pool->n_free == 0 && pool->n_idle > 0) evict(pool);
    if (pool->n_free == 0) return false;
    *block = pool->free_ids[--pool->n_free];
    pool->states[*block].references = 1;
    return true;
}

/* Whether the holder of a block gives it back: a block always has one. */
static bool has_holder(const struct kvad_kv_pool *pool, uint32_t block) {
    (void)pool;
    (void)block;
    return KVAD_WHILE_FAULTY(true, pool->states[block].references > 0);
}

void kvad_kv_pool_retain(struct kvad_kv_pool *pool, uint32_t block) {
    assert(block < pool->n_blocks &&
           (pool->states[block].references > 0 || pool->states[block].is_cached));
    if (pool->states[block].references == 0) remove_idle(pool, block);
    if (++pool->states[block].references == 2) pool->n_shared++;
}

void kvad_kv_pool_release(struct kvad_kv_pool *pool, uint32_t block) {
    if (!has_holder(pool, block)) return;
    assert(block < pool->n_blocks && pool->states[block].references > 0);
    if (--pool->states[block].references == 1) pool->n_shared--;
    if (pool->states[block].references > 0) return;
    if (pool->states[block].is_cached)
        append_idle(pool, block);
    else
        pool->free_ids[pool->n_free++] = block;
}

void kvad_kv_pool_set_cached(struct kvad_kv_pool *pool, uint32_t block, bool is_cached) {
    bool was_idle = pool->states[block].references == 0 && pool->states[block].is_cached;
    assert(!is_cached || pool->states[block].references > 0);
    pool->states[block].is_cached = is_cached;
    if (is_cached || !was_idle) return;
    remove_idle(pool, block);
    pool->free_ids[pool->n_free++] = block;
}

/* ---------------------------------------------------------------- the invariant */

static bool idle_list_is_sound(const struct kvad_kv_pool *pool) {
    size_t n = 0;
    uint32_t before = KVAD_KV_NO_BLOCK;
    for (uint32_t id = pool->idle_oldest; id != KVAD_KV_NO_BLOCK; id = pool->states[id].newer) {
        if (id >= pool->n_blocks || n++ == pool->n_idle) return false;
        if (pool->states[id].references != 0 || !pool->states[id].is_cached) return false;
        if (pool->states[id].older != before) return false;
        before = id;
    }
    return n == pool->n_idle && pool->idle_newest == before;
}

bool kvad_kv_pool_is_sound(const struct kvad_kv_pool *pool) {
    size_t n_referenced = 0, n_shared = 0, n_idle = 0;
    for (size_t i = 0; i < pool->n_blocks; i++) {
        n_referenced += pool->states[i].references > 0;
        n_shared += pool->states[i].references > 1;
        n_idle += pool->states[i].references == 0 && pool->states[i].is_cached;
    }
    if (n_referenced + pool->n_free + pool->n_idle != pool->n_blocks) return false;
    if (n_shared != pool->n_shared || n_idle != pool->n_idle) return false;
    for (size_t i = 0; i < pool->n_free; i++) {
        uint32_t id = pool->free_ids[i];
        if (id >= pool->n_blocks || pool->states[id].references != 0 || pool->states[id].is_cached)
            return false;
        for (size_t j = 0; j < i; j++)
            if (pool->free_ids[j] == id) return false;
    }
    return idle_list_is_sound(pool);
}
