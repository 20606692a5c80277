#include "engine/engine.h"

#include "engine/budget.h"
#include "engine/pin.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/growing.h"

enum { DEFAULT_BATCH_TOKENS = 512, DEFAULT_BLOCK_TOKENS = 16, MAX_SEQUENCES = 1 << 16 };

void kvad_engine_log(const struct kvad_engine *engine, enum kvad_log_level level,
                     const char *format, ...) {
    if (!engine->log.write) return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    engine->log.write(engine->log.user, level, text);
}

void kvad_engine_options_init_sized(struct kvad_engine_options *options, size_t size) {
    struct kvad_engine_options ours = {0};
    kvad_growing_give_options(options, size, &ours, sizeof ours);
}

/* Take over what the caller's (perhaps older, shorter) struct holds. */
static enum kvad_status read_options(const struct kvad_engine_options *given,
                                     struct kvad_engine_options *options, struct kvad_error *err) {
    kvad_engine_options_init(options);
    if (!given) return KVAD_OK;
    return kvad_growing_take_options(options, sizeof *options, given, "engine", err);
}

static enum kvad_status check_limits(struct kvad_engine *e, const struct kvad_engine_options *o,
                                     struct kvad_error *err) {
    uint32_t model_ctx = e->model->description.n_ctx;
    e->cache = o->cache;
    e->n_ctx = o->n_ctx ? o->n_ctx : model_ctx;
    e->n_sequences = o->n_sequences ? o->n_sequences : 1;
    e->n_batch_tokens = o->n_batch_tokens ? o->n_batch_tokens : DEFAULT_BATCH_TOKENS;
    if (e->cache >= KVAD_CACHE_POLICY_COUNT)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "cache policy %d is unknown", (int)e->cache);
    if (e->n_ctx > model_ctx)
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "n_ctx is %u, but the model's position table has %u rows", e->n_ctx,
                         model_ctx);
    if (e->n_sequences > MAX_SEQUENCES)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "n_sequences is %u, must be at most %d",
                         e->n_sequences, MAX_SEQUENCES);
    /* Every sequence gets at least one row of a step. A step never has more rows than all contexts
     * together. */
    uint64_t useful = (uint64_t)e->n_sequences * e->n_ctx;
    if (e->n_batch_tokens < e->n_sequences) e->n_batch_tokens = e->n_sequences;
    if (e->n_batch_tokens > useful) e->n_batch_tokens = (uint32_t)useful;
    return KVAD_OK;
}

static enum kvad_status pick_kernels(struct kvad_engine *e, const char *cpu,
                                     struct kvad_error *err) {
    enum kvad_cpu_level level = kvad_cpu_level_best();
    if (cpu && !kvad_cpu_level_from_name(cpu, &level))
        return kvad_fail(err, KVAD_ERR_ARGUMENT,
                         "cpu level \"%s\" is unknown: baseline, portable, avx2, avx512, "
                         "avx512-vnni, neon or neon-dotprod",
                         cpu);
    if (!kvad_cpu_level_supported(level))
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "this CPU cannot run level \"%s\"; best is %s",
                         cpu, kvad_cpu_level_name(kvad_cpu_level_best()));
    kvad_kernels_pick(&e->kernels, level);
    return KVAD_OK;
}

/* The paged pool: as large as asked for, or enough for every sequence at its longest. The other
 * policies keep to the same bytes without one. */
static enum kvad_status open_pool(struct kvad_engine *e, uint64_t kv_bytes,
                                  struct kvad_error *err) {
    if (e->cache != KVAD_CACHE_PAGED && e->cache != KVAD_CACHE_NONE) {
        e->kv_budget = kv_bytes;
        return kvad_budget_check_open(e, err);
    }
    size_t block_bytes = e->shape.block_bytes;
    size_t n_blocks = kvad_kv_blocks_for(&e->shape, e->n_ctx) * e->n_sequences;
    if (kv_bytes) {
        if (kv_bytes < block_bytes)
            return kvad_fail(err, KVAD_ERR_NO_BLOCKS,
                             "cache memory (kv_bytes) is %llu bytes, but one block of %zu tokens "
                             "needs %zu bytes",
                             (unsigned long long)kv_bytes, e->shape.block_tokens, block_bytes);
        uint64_t n = kv_bytes / block_bytes;
        n_blocks = n > UINT32_MAX ? UINT32_MAX : (size_t)n;
    }
    return kvad_kv_pool_init(&e->pool, &e->shape, n_blocks, &e->heap, err);
}

/* Everything besides the tokens and the salt that rows depend on. */
static enum kvad_status open_prefix(struct kvad_engine *e, const struct kvad_engine_options *o,
                                    struct kvad_error *err) {
    if (e->cache != KVAD_CACHE_PAGED || o->no_prefix_cache) return KVAD_OK;
    const struct kvad_description *d = &e->model->description;
    const uint32_t model[] = {d->n_layers,
                              d->n_kv_heads,
                              d->head_dim,
                              d->n_vocab,
                              (uint32_t)e->model->weights,
                              (uint32_t)e->shape.k_type,
                              (uint32_t)e->shape.v_type,
                              (uint32_t)e->shape.block_tokens};
    KVAD_TRY(kvad_prefix_init(&e->prefix, &e->pool, &e->shape, model, sizeof model, &e->heap, err));
    size_t n = kvad_kv_blocks_for(&e->shape, e->n_ctx);
    e->found = kvad_alloc_zero(&e->heap, n, sizeof *e->found);
    return e->found ? KVAD_OK : kvad_fail_memory(err, "prefix index", n * sizeof *e->found);
}

static enum kvad_status open_step(struct kvad_engine *e, struct kvad_error *err) {
    uint64_t before = atomic_load(&e->heap.bytes);
    size_t n = e->n_sequences, n_vocab = e->model->description.n_vocab, floats;
    if (!kvad_mul_size(n, n_vocab, &floats))
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "%zu sequences are too many", n);
    e->items = kvad_alloc_zero(&e->heap, n, sizeof *e->items);
    e->step_items = kvad_alloc_zero(&e->heap, n, sizeof *e->step_items);
    e->step_owners = kvad_alloc_zero(&e->heap, n, sizeof *e->step_owners);
    e->step_logits = kvad_alloc_zero(&e->heap, floats, sizeof *e->step_logits);
    e->running = kvad_alloc_zero(&e->heap, n, sizeof(struct kvad_request *));
    if (!e->items || !e->step_items || !e->step_owners || !e->step_logits || !e->running)
        return kvad_fail_memory(err, "logits of a step", floats * sizeof *e->step_logits);
    KVAD_TRY(kvad_forward_create(e->model, &e->kernels, e->threads, e->n_batch_tokens, &e->heap,
                                 &e->forward, err));
    e->step_bytes = atomic_load(&e->heap.bytes) - before;
    return KVAD_OK;
}

static enum kvad_status open_engine(struct kvad_engine *e, const struct kvad_engine_options *o,
                                    struct kvad_error *err) {
    const struct kvad_description *d = &e->model->description;
    KVAD_TRY(check_limits(e, o, err));
    KVAD_TRY(pick_kernels(e, o->cpu, err));
    if (o->threads)
        e->threads = kvad_threads_retain(o->threads);
    else
        KVAD_TRY(kvad_threads_create(o->n_threads, &e->heap.hook, &e->threads, err));
    e->shape = (struct kvad_kv_shape){.n_layers = d->n_layers,
                                      .n_kv_heads = d->n_kv_heads,
                                      .head_dim = d->head_dim,
                                      .block_tokens =
                                          o->block_tokens ? o->block_tokens : DEFAULT_BLOCK_TOKENS,
                                      .k_type = o->k_type,
                                      .v_type = o->v_type};
    KVAD_TRY(kvad_kv_shape_init(&e->shape, err));
    KVAD_TRY(open_pool(e, o->kv_bytes, err));
    KVAD_TRY(open_prefix(e, o, err));
    KVAD_TRY(open_step(e, err));
    kvad_engine_log(e, KVAD_LOG_INFO,
                    "engine: %u threads, %s kernels, context %u tokens, %.1f MiB for a step",
                    kvad_threads_count(e->threads), e->kernels.isa, e->n_ctx,
                    (double)e->step_bytes / (1 << 20));
    return KVAD_OK;
}

enum kvad_status kvad_engine_open(struct kvad_model *model,
                                  const struct kvad_engine_options *options,
                                  struct kvad_engine **out, struct kvad_error *err) {
    if (!model || !out) return kvad_fail(err, KVAD_ERR_ARGUMENT, "engine: no model given");
    struct kvad_engine_options o;
    KVAD_TRY(read_options(options, &o, err));
    /* The engine itself comes from its own heap: counted before the heap moves in. */
    struct kvad_heap heap;
    kvad_heap_init(&heap, &o.allocator);
    struct kvad_engine *e = heap.hook.allocate(heap.hook.user, sizeof *e, KVAD_ALIGNMENT);
    if (!e) return kvad_fail_memory(err, "engine", sizeof *e);
    memset(e, 0, sizeof *e);
    kvad_heap_init(&e->heap, &o.allocator);
    kvad_turns_init(&e->turns);
    e->log = o.log;
    e->model = kvad_model_retain(model);
    enum kvad_status status = open_engine(e, &o, err);
    if (status != KVAD_OK) {
        kvad_engine_close(&e);
        return status;
    }
    *out = e;
    return KVAD_OK;
}

void kvad_engine_close(struct kvad_engine **engine) {
    if (!engine || !*engine) return;
    struct kvad_engine *e = *engine;
    assert(e->n_alive == 0);
    *engine = NULL;
    size_t n = e->n_sequences;
    kvad_forward_destroy(&e->forward);
    kvad_free(&e->heap, e->items, n * sizeof *e->items);
    kvad_free(&e->heap, e->step_items, n * sizeof *e->step_items);
    kvad_free(&e->heap, e->step_owners, n * sizeof *e->step_owners);
    kvad_free(&e->heap, e->step_logits, n * e->model->description.n_vocab * sizeof *e->step_logits);
    kvad_free(&e->heap, e->running, n * sizeof(struct kvad_request *));
    kvad_queue_deinit(&e->queue, &e->heap);
    while (e->pins)
        kvad_cache_unpin(e, e->pins->id);
    if (e->found)
        kvad_free(&e->heap, e->found, kvad_kv_blocks_for(&e->shape, e->n_ctx) * sizeof *e->found);
    kvad_prefix_deinit(&e->prefix);
    if (e->pool.heap) kvad_kv_pool_deinit(&e->pool);
    kvad_threads_release(&e->threads);
    kvad_model_release(&e->model);
    kvad_turns_deinit(&e->turns);
    struct kvad_allocator hook = e->heap.hook;
    hook.release(hook.user, e, sizeof *e);
}

uint64_t kvad_engine_kv_bytes(const struct kvad_engine *engine) {
    uint64_t bytes = 0;
    if (engine->pool.heap)
        return (engine->pool.n_blocks - kvad_kv_pool_available(&engine->pool)) *
               (uint64_t)engine->pool.block_bytes;
    for (const struct kvad_sequence *s = engine->sequences; s; s = s->next)
        bytes += kvad_kv_sequence_bytes(&s->kv);
    return bytes;
}

uint64_t kvad_kv_bytes_per_token(const struct kvad_model_info *info, enum kvad_kv_type k_type,
                                 enum kvad_kv_type v_type) {
    return (uint64_t)info->n_layers * info->n_kv_heads *
           (kvad_kv_row_bytes(k_type, info->head_dim) + kvad_kv_row_bytes(v_type, info->head_dim));
}

void kvad_engine_note_peak(struct kvad_engine *engine) {
    uint64_t bytes = kvad_engine_kv_bytes(engine);
    if (bytes > engine->kv_bytes_peak) engine->kv_bytes_peak = bytes;
}

void kvad_engine_get_info_sized(const struct kvad_engine *engine, struct kvad_engine_info *info,
                                size_t size) {
    kvad_engine_take_turn(engine);
    struct kvad_engine_info ours = {.n_threads = kvad_threads_count(engine->threads),
                                    .n_ctx = engine->n_ctx,
                                    .block_tokens = (uint32_t)engine->shape.block_tokens,
                                    .n_blocks = (uint32_t)engine->pool.n_blocks,
                                    .k_type = engine->shape.k_type,
                                    .v_type = engine->shape.v_type,
                                    .kv_bytes_per_token = kvad_kv_token_bytes(&engine->shape),
                                    .step_bytes = engine->step_bytes,
                                    .kv_pool_bytes =
                                        (uint64_t)engine->pool.n_blocks * engine->pool.block_bytes,
                                    .kv_bytes = kvad_engine_kv_bytes(engine),
                                    .kv_bytes_peak = engine->kv_bytes_peak};
    kvad_engine_end_turn(engine);
    snprintf(ours.cpu, sizeof ours.cpu, "%s", engine->kernels.isa);
    kvad_growing_give(info, size, &ours, sizeof ours);
}

/* An engine is never an object that was defined const. */
static struct kvad_turns *turns_of(const struct kvad_engine *engine) {
    return &((struct kvad_engine *)(uintptr_t)engine)->turns;
}

void kvad_engine_take_turn(const struct kvad_engine *engine) {
    /* A callback that calls its engine would wait for its own end. */
    assert(!kvad_turns_is_mine(turns_of(engine)));
    kvad_turns_take(turns_of(engine));
}

void kvad_engine_end_turn(const struct kvad_engine *engine) {
    kvad_turns_end(turns_of(engine));
}

void kvad_engine_interrupt(struct kvad_engine *engine) {
    /* Lock-free, hence allowed in a signal handler. */
    atomic_store(&engine->interrupt, true);
}
