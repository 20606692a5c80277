#include "engine/budget.h"

#include "base/error.h"

static size_t budget_blocks(const struct kvad_engine *e) {
    uint64_t n = e->kv_budget / e->shape.block_bytes;
    return n > SIZE_MAX ? SIZE_MAX : (size_t)n;
}

static size_t context_blocks(const struct kvad_engine *e) {
    return kvad_kv_blocks_for(&e->shape, e->n_ctx);
}

enum kvad_status kvad_budget_check_open(const struct kvad_engine *engine, struct kvad_error *err) {
    const struct kvad_engine *e = engine;
    if (e->kv_budget == 0 || e->cache != KVAD_CACHE_STATIC) return KVAD_OK;
    if (context_blocks(e) <= budget_blocks(e)) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_NO_BLOCKS,
                     "cache memory (kv_bytes) is %llu bytes, but the static cache reserves %zu for "
                     "each sequence of %u tokens: give more, or a smaller n_ctx",
                     (unsigned long long)e->kv_budget, context_blocks(e) * e->shape.block_bytes,
                     e->n_ctx);
}

enum kvad_status kvad_budget_check_sequence(const struct kvad_engine *engine,
                                            struct kvad_error *err) {
    const struct kvad_engine *e = engine;
    if (e->kv_budget == 0 || e->cache != KVAD_CACHE_STATIC) return KVAD_OK;
    if (e->n_alive < budget_blocks(e) / context_blocks(e)) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_NO_BLOCKS,
                     "%u static sequences hold all that cache memory (kv_bytes) of %llu bytes "
                     "allows: end one or give more",
                     e->n_alive, (unsigned long long)e->kv_budget);
}

enum kvad_status kvad_budget_check_request(const struct kvad_request *request, size_t longest,
                                           struct kvad_error *err) {
    const struct kvad_engine *e = request->engine;
    if (e->kv_budget == 0 || e->cache != KVAD_CACHE_GROW) return KVAD_OK;
    size_t copied = longest > 1 ? kvad_kv_blocks_for(&e->shape, longest - 1) : 0;
    size_t wanted = request->n_blocks + copied;
    if (wanted <= budget_blocks(e)) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_NO_BLOCKS,
                     "%zu tokens need %zu bytes while the cache that grows is copied, cache memory "
                     "(kv_bytes) is %llu: ask for fewer tokens or give more",
                     longest, wanted * e->shape.block_bytes, (unsigned long long)e->kv_budget);
}

size_t kvad_budget_missing(const struct kvad_engine *engine, const struct kvad_eval_item *items,
                           size_t n_items) {
    const struct kvad_engine *e = engine;
    if (e->kv_budget == 0 || e->cache != KVAD_CACHE_GROW) return 0;
    size_t held = 0, copied = 0;
    for (const struct kvad_sequence *s = e->sequences; s; s = s->next)
        held += s->kv.n_area_blocks;
    for (size_t i = 0; i < n_items; i++) {
        const struct kvad_kv_sequence *kv = &items[i].sequence->kv;
        held += kvad_kv_blocks_for(&e->shape, kv->length + items[i].n_tokens) - kv->n_area_blocks;
        /* Areas are replaced one after the other: the largest is the worst. */
        if (kv->n_area_blocks > copied) copied = kv->n_area_blocks;
    }
    size_t wanted = held + copied, budget = budget_blocks(e);
    return wanted > budget ? wanted - budget : 0;
}

bool kvad_budget_fits(const struct kvad_request *request) {
    const struct kvad_engine *e = request->engine;
    if (e->kv_budget == 0) return true;
    if (e->cache == KVAD_CACHE_STATIC) return kvad_budget_check_sequence(e, NULL) == KVAD_OK;
    if (e->cache != KVAD_CACHE_GROW || e->n_running == 0) return true;
    size_t n = request->n_ids - request->window;
    size_t held = kvad_min_size(kvad_kv_blocks_for(&e->shape, n) + 1, request->n_blocks);
    size_t copied = held;
    for (size_t i = 0; i < e->n_running; i++) {
        const struct kvad_request *r = e->running[i];
        size_t wanted = kvad_kv_blocks_for(&e->shape, r->n_ids - r->window);
        if (wanted < r->sequence->kv.n_area_blocks) wanted = r->sequence->kv.n_area_blocks;
        held += wanted;
        if (wanted > copied) copied = wanted;
    }
    return held + copied <= budget_blocks(e);
}
