/* Whether an engine's tables agree with each other: a block that is counted wrongly is found where
 * it happens, not where it shows. */
#include "lab/verify_internal.h"

/* Each block of the pool has as many references as sequences that hold it. */
static bool counts_agree(const struct kvad_engine *engine, uint32_t *holders) {
    const struct kvad_kv_pool *pool = &engine->pool;
    for (const struct kvad_sequence *s = engine->sequences; s; s = s->next)
        for (size_t i = 0; s->kv.source == KVAD_KV_PAGED && i < s->kv.n_blocks; i++) {
            if (s->kv.table[i] >= pool->n_blocks) return false;
            holders[s->kv.table[i]]++;
        }
    for (size_t i = 0; i < pool->n_blocks; i++)
        if (holders[i] != pool->states[i].references) return false;
    return true;
}

bool verify_sound(struct verify_run *run, const struct kvad_engine *engine) {
    struct kvad_heap *heap = &run->v->heap;
    const struct kvad_kv_pool *pool = &engine->pool;
    if (!pool->heap) return true; /* every sequence has an area of its own */
    uint32_t *holders = kvad_alloc_zero(heap, pool->n_blocks, sizeof *holders);
    if (!holders) return verify_no_memory(run, pool->n_blocks * sizeof *holders);
    bool is_counted = counts_agree(engine, holders);
    kvad_free(heap, holders, pool->n_blocks * sizeof *holders);
    if (is_counted && kvad_kv_pool_is_sound(pool) &&
        (!engine->prefix.heap || kvad_prefix_is_sound(&engine->prefix)))
        return true;
    run->is_broken = true;
    return verify_fail(run, "%s",
                       is_counted ? "the lists of free, idle and known blocks disagree"
                                  : "a block has more or fewer holders than it counts");
}
