#include "engines.h"

#include <math.h>

#include "model/forward_internal.h"
#include "test.h"

enum { MAX_THREADS = 8 };

const enum kvad_cache_policy policies[N_POLICIES] = {KVAD_CACHE_PAGED, KVAD_CACHE_STATIC,
                                                     KVAD_CACHE_GROW, KVAD_CACHE_NONE};

bool test_is_slow(void) {
    return test_cpu() && strcmp(test_cpu(), "baseline") == 0;
}

static struct kvad_threads *pools[MAX_THREADS + 1];
/* Of all engines that engine_options() made options for. */
static struct test_heap engine_heap;

struct kvad_threads *test_threads(unsigned n) {
    assert_in_range(n, 1, MAX_THREADS);
    struct kvad_error err;
    if (!pools[n]) assert_ok(kvad_threads_create(n, NULL, &pools[n], &err), &err);
    return pools[n];
}

int release_test_threads(void **state) {
    (void)state;
    for (unsigned n = 0; n <= MAX_THREADS; n++)
        kvad_threads_release(&pools[n]);
    return 0;
}

struct kvad_engine_options engine_options(enum kvad_cache_policy policy, unsigned n_threads) {
    struct kvad_engine_options options;
    kvad_engine_options_init(&options);
    options.cache = policy;
    options.threads = test_threads(n_threads);
    options.cpu = test_cpu();
    options.allocator = test_heap_hook(&engine_heap);
    return options;
}

struct kvad_engine *open_engine(struct kvad_model *model,
                                const struct kvad_engine_options *options) {
    struct kvad_engine *engine = NULL;
    struct kvad_error err;
    assert_ok(kvad_engine_open(model, options, &engine, &err), &err);
    return engine;
}

void assert_idle(const struct kvad_engine *engine) {
    assert_null(engine->sequences);
    assert_int_equal(engine->queue.n + engine->n_running + engine->n_parked, 0);
    assert_int_equal(engine->n_alive, 0);
    assert_int_equal(kvad_kv_pool_available(&engine->pool), engine->pool.n_blocks);
    assert_int_equal(kvad_engine_kv_bytes(engine), 0);
    /* The check is quadratic; the sparse pools of many gigabytes go without. */
    if (engine->pool.heap && engine->pool.n_blocks < 10000)
        assert_true(kvad_kv_pool_is_sound(&engine->pool));
    if (engine->prefix.heap && engine->pool.n_blocks < 10000)
        assert_true(kvad_prefix_is_sound(&engine->prefix));
}

void close_engine(struct kvad_engine **engine) {
    struct test_heap *heap = (*engine)->heap.hook.user;
    assert_idle(*engine);
    kvad_engine_close(engine);
    assert_null(*engine);
    if (heap == &engine_heap) return; /* may hold other engines */
    assert_int_equal(atomic_load(&heap->n_live), 0);
}

struct kvad_sequence *new_sequence(struct kvad_engine *engine) {
    struct kvad_sequence *sequence = NULL;
    struct kvad_error err;
    assert_ok(kvad_sequence_create(engine, &sequence, &err), &err);
    return sequence;
}

void feed(struct kvad_sequence *sequence, const int32_t *tokens, size_t n, float *logits,
          float *hidden) {
    const struct kvad_description *d = &sequence->engine->model->description;
    struct kvad_eval_item item = {.sequence = sequence,
                                  .tokens = tokens,
                                  .n_tokens = n,
                                  .n_rows = logits ? n : 0,
                                  .logits = logits,
                                  .hidden = hidden};
    if (logits) poison(logits, n * d->n_vocab);
    if (hidden) poison(hidden, (d->n_layers + 1) * n * d->d_model);
    size_t length = kvad_sequence_length(sequence);
    struct kvad_error err;
    assert_ok(kvad_eval(sequence->engine, &item, 1, &err), &err);
    assert_int_equal(kvad_sequence_length(sequence), length + n);
}

void cut(struct kvad_sequence *sequence, size_t length) {
    struct kvad_error err;
    assert_ok(kvad_sequence_truncate(sequence, length, &err), &err);
    assert_int_equal(kvad_sequence_length(sequence), length);
}

/* ---------------------------------------------------------------- poison */

void poison(float *values, size_t n) {
    for (size_t i = 0; i < n; i++)
        values[i] = NAN;
}

/* Token `t` (in [0, B)) of one block, in all layers and heads. */
static void poison_token(const struct kvad_kv_shape *shape, unsigned char *block, size_t t,
                         enum poison_target target, float value) {
    for (size_t layer = 0; layer < shape->n_layers; layer++)
        for (size_t head = 0; head < shape->n_kv_heads; head++)
            for (size_t d = 0; d < shape->head_dim; d++) {
                float *k = (float *)(void *)(block + kvad_kv_k_offset(shape, layer, head));
                float *v = (float *)(void *)(block + kvad_kv_v_offset(shape, layer, head));
                if (target & POISON_K) k[kvad_kv_k_index(shape, t, d)] = value;
                if (target & POISON_V) v[t * shape->head_dim + d] = value;
            }
}

static void poison_blocks(const struct kvad_kv_shape *shape, unsigned char *base, size_t first,
                          size_t last, enum poison_target target, float value) {
    for (size_t i = first; i < last; i++)
        for (size_t t = 0; t < shape->block_tokens; t++)
            poison_token(shape, base + i * shape->block_bytes, t, target, value);
}

static void poison_sequence(struct kvad_kv_sequence *s, enum poison_target target, float value) {
    const struct kvad_kv_shape *shape = s->shape;
    for (size_t t = s->n_ready; t < s->n_blocks * shape->block_tokens; t++) {
        /* Others may count on rows of a shared block. */
        size_t i = t / shape->block_tokens;
        if (s->source == KVAD_KV_PAGED && !kvad_kv_pool_may_write(s->pool, s->table[i])) continue;
        poison_token(shape, kvad_kv_sequence_block(s, t), t % shape->block_tokens, target, value);
    }
    if (s->source == KVAD_KV_PAGED) return;
    for (size_t i = s->n_blocks; i < s->n_area_blocks; i++)
        poison_blocks(shape, s->base, s->table[i], (size_t)s->table[i] + 1, target, value);
}

void poison_unused(struct kvad_engine *engine, enum poison_target target, float value) {
    for (struct kvad_sequence *s = engine->sequences; s; s = s->next)
        poison_sequence(&s->kv, target, value);
    for (size_t i = 0; i < engine->pool.n_free; i++) {
        size_t id = engine->pool.free_ids[i];
        poison_blocks(&engine->shape, engine->pool.blocks, id, id + 1, target, value);
    }
}

static void fill(float *values, size_t n, float value) {
    for (size_t i = 0; i < n; i++)
        values[i] = value;
}

void poison_step(struct kvad_engine *engine, float value) {
    struct kvad_forward *f = engine->forward;
    fill(f->hidden, f->max_rows * f->d_stride, value);
    fill(f->normed, f->max_rows * f->d_stride, value);
    fill(f->qkv, f->max_rows * f->qkv_stride, value);
    fill(f->attended, f->max_rows * f->attended_stride, value);
    fill(f->delta, f->max_rows * f->d_stride, value);
    fill(f->ff, f->max_rows * f->ff_stride, value);
    fill(f->head, kvad_min_size(f->max_rows, FORWARD_HEAD_ROWS) * f->vocab_stride, value);
    if (f->quant)
        fill((float *)(void *)f->quant, f->max_rows * f->quant_stride / sizeof(float), value);
    for (unsigned i = 0; i < f->n_workers; i++)
        fill((float *)(void *)f->workers[i].memory, f->workers[i].bytes / sizeof(float), value);
    fill(engine->step_logits, engine->n_sequences * engine->model->description.n_vocab, value);
}
