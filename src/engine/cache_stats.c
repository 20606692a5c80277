/* Where the bytes of the cache are, and what requests got out of it. */
#include "base/growing.h"
#include "engine/pin.h"
#include "engine/request.h"

/* Of all that is there for the cache beside its blocks. */
static uint64_t count_table_bytes(const struct kvad_engine *e) {
    uint64_t bytes = kvad_prefix_table_bytes(&e->prefix);
    if (e->pool.heap) bytes += kvad_kv_pool_table_bytes(&e->pool);
    if (e->found) bytes += kvad_kv_blocks_for(&e->shape, e->n_ctx) * sizeof *e->found;
    for (const struct kvad_sequence *s = e->sequences; s; s = s->next)
        bytes += sizeof *s + kvad_kv_sequence_table_bytes(&s->kv);
    for (const struct kvad_cache_pin *pin = e->pins; pin; pin = pin->next)
        bytes += kvad_cache_pin_bytes(pin);
    return bytes;
}

static void read_stats(const struct kvad_engine *e, struct kvad_cache_stats *stats) {
    const struct kvad_kv_pool *pool = &e->pool;
    const struct kvad_cache_counters *counters = &e->counters;
    uint64_t bytes = pool->block_bytes;
    *stats = (struct kvad_cache_stats){.n_prompt_tokens = counters->n_prompt_tokens,
                                       .n_hit_tokens = counters->n_hit_tokens,
                                       .n_preemptions = counters->n_preemptions,
                                       .n_recomputed_tokens = counters->n_recomputed_tokens,
                                       .n_running = e->n_running,
                                       .n_waiting = e->queue.n + e->n_parked,
                                       .table_bytes = count_table_bytes(e)};
    if (!pool->heap) {
        stats->live_bytes = kvad_engine_kv_bytes(e);
        return;
    }
    size_t n_held = pool->n_blocks - kvad_kv_pool_available(pool);
    stats->live_bytes = (n_held - pool->n_shared) * bytes;
    stats->shared_bytes = pool->n_shared * bytes;
    stats->idle_bytes = pool->n_idle * bytes;
    stats->free_bytes = pool->n_free * bytes;
    stats->n_evictions = pool->n_evictions;
    stats->n_copies = pool->n_copies;
}

void kvad_cache_get_stats_sized(const struct kvad_engine *engine, struct kvad_cache_stats *stats,
                                size_t size) {
    struct kvad_cache_stats ours;
    kvad_engine_take_turn(engine);
    read_stats(engine, &ours);
    kvad_engine_end_turn(engine);
    kvad_growing_give(stats, size, &ours, sizeof ours);
}

static void read_request(const struct kvad_request *r, struct kvad_request_info *info) {
    *info = (struct kvad_request_info){.n_prompt_tokens = r->n_prompt,
                                       .n_output_tokens = r->n_outputs,
                                       .n_cached_tokens = r->n_cached,
                                       .miss = r->miss,
                                       .evicted_steps = r->evicted_ago,
                                       .n_preemptions = r->n_preemptions,
                                       .n_recomputed_tokens = r->n_recomputed,
                                       .is_running = r->state == REQUEST_RUNNING};
    if (!r->sequence) return;
    const struct kvad_kv_sequence *kv = &r->sequence->kv;
    info->bytes_held = kvad_kv_sequence_bytes(kv);
    if (kv->source != KVAD_KV_PAGED) return;
    for (size_t i = 0; i < kv->n_blocks; i++)
        if (kv->pool->states[kv->table[i]].references > 1)
            info->bytes_saved += kv->pool->block_bytes;
}

void kvad_request_get_miss_sized(const struct kvad_request *request, struct kvad_miss_info *info,
                                 size_t size) {
    const struct kvad_request *r = request;
    kvad_engine_take_turn(r->engine);
    size_t at = r->first_window + r->n_cached;
    struct kvad_miss_info ours = {.miss = r->miss,
                                  .position = at,
                                  .wanted = at < r->n_prompt ? r->ids[at] : -1,
                                  .cached = -1,
                                  .evicted_for = KVAD_NO_REQUEST};
    if (r->miss == KVAD_MISS_DIFFERS || r->miss == KVAD_MISS_EVICTED) ours.cached = r->miss_other;
    if (r->miss == KVAD_MISS_EVICTED) {
        ours.evicted_steps = r->evicted_ago;
        ours.evicted_for = r->evicted_for;
    }
    kvad_engine_end_turn(r->engine);
    kvad_growing_give(info, size, &ours, sizeof ours);
}

uint64_t kvad_request_number(const struct kvad_request *request) {
    return request->arrival;
}

void kvad_request_get_info_sized(const struct kvad_request *request, struct kvad_request_info *info,
                                 size_t size) {
    struct kvad_request_info ours;
    kvad_engine_take_turn(request->engine);
    read_request(request, &ours);
    kvad_engine_end_turn(request->engine);
    kvad_growing_give(info, size, &ours, sizeof ours);
}

static char block_sign(const struct kvad_kv_pool *pool, size_t block) {
    uint32_t n = pool->states[block].references;
    if (n == 0) return pool->states[block].is_cached ? 'o' : '.';
    return n > 9 ? '+' : (char)('0' + n);
}

size_t kvad_cache_map(const struct kvad_engine *engine, char *text, size_t capacity) {
    const struct kvad_kv_pool *pool = &engine->pool;
    if (capacity == 0) return pool->n_blocks;
    size_t n = kvad_min_size(pool->n_blocks, capacity - 1);
    kvad_engine_take_turn(engine);
    for (size_t i = 0; i < n; i++)
        text[i] = block_sign(pool, i);
    kvad_engine_end_turn(engine);
    text[n] = '\0';
    return pool->n_blocks;
}

void kvad_cache_clear(struct kvad_engine *engine) {
    if (!engine->prefix.heap) return;
    kvad_engine_take_turn(engine);
    engine->prefix.taker = KVAD_NO_REQUEST;
    kvad_prefix_clear(&engine->prefix);
    kvad_engine_end_turn(engine);
}
