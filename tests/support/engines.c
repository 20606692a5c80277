#include "engines.h"

#include <math.h>

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

struct kvad_engine_options paged_options(uint32_t n_sequences) {
    struct kvad_engine_options options = engine_options(KVAD_CACHE_PAGED, 2);
    options.n_sequences = n_sequences;
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
