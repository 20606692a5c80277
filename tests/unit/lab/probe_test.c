#include "engine/probe.h"

#include "engine/engine.h"
#include "lab/synthetic.h"
#include "test.h"

struct fixture {
    struct kvad_heap heap;
    struct kvad_threads *threads;
    struct kvad_model *model;
    struct kvad_engine *engine;
    struct kvad_sequence *sequence;
    struct kvad_probe probe;
    float *logits; /* of one row */
};

static void set_up(struct fixture *f, enum kvad_weight_type weights,
                   enum kvad_cache_policy policy) {
    struct kvad_error err;
    struct kvad_model_options model_options;
    struct kvad_engine_options options;
    kvad_heap_init(&f->heap, NULL);
    kvad_model_options_init(&model_options);
    model_options.weights = weights;
    kvad_engine_options_init(&options);
    assert_ok(kvad_threads_create(2, NULL, &f->threads, &err), &err);
    assert_ok(kvad_synthetic_build("tiny", 1, &model_options, &f->model, &err), &err);
    options.threads = f->threads;
    options.cache = policy;
    assert_ok(kvad_engine_open(f->model, &options, &f->engine, &err), &err);
    assert_ok(kvad_sequence_create(f->engine, &f->sequence, &err), &err);
    assert_ok(kvad_probe_init(&f->probe, f->threads, &f->heap, &err), &err);
    f->logits = test_malloc(301 * sizeof *f->logits);
}

static void tear_down(struct fixture *f) {
    test_free(f->logits);
    kvad_sequence_destroy(&f->sequence);
    kvad_engine_close(&f->engine);
    kvad_model_release(&f->model);
    kvad_probe_deinit(&f->probe, &f->heap);
    kvad_threads_release(&f->threads);
}

/* Append `n` tokens; *ns is the time between the first and the last look at the clock. */
static void step(struct fixture *f, size_t n, uint64_t *ns) {
    static const int32_t tokens[20];
    struct kvad_error err;
    struct kvad_eval_item item = {
        .sequence = f->sequence, .tokens = tokens, .n_tokens = n, .n_rows = 1, .logits = f->logits};
    kvad_probe_start(&f->probe);
    uint64_t start = f->probe.clocks[0].last;
    assert_ok(kvad_eval(f->engine, &item, 1, &err), &err);
    *ns = f->probe.clocks[0].last - start;
}

static uint64_t total(const struct kvad_probe_clock *clock) {
    uint64_t sum = 0;
    for (size_t part = 0; part < KVAD_PART_COUNT; part++)
        sum += clock->ns[part];
    return sum;
}

static void test_parts_of_a_step_add_up_to_the_step(void **state) {
    (void)state;
    struct fixture f;
    uint64_t first, second;
    set_up(&f, KVAD_WEIGHTS_F32, KVAD_CACHE_PAGED);
    kvad_engine_set_probe(f.engine, &f.probe);
    step(&f, 20, &first);
    step(&f, 1, &second);
    assert_true(total(&f.probe.clocks[0]) == first + second);
    /* The other worker's clock is read a moment later than the caller's, never before. */
    assert_true(total(&f.probe.clocks[1]) >= first + second);
    tear_down(&f);
}

/* `kvad bench --trace` holds a step against it. Of the caller's clock: all parts of the forward
 * pass are in it, and of the others no more than `other`, which checks and plans. */
static void test_the_time_of_the_forward_pass_is_that_of_its_parts(void **state) {
    (void)state;
    struct fixture f;
    uint64_t ns;
    set_up(&f, KVAD_WEIGHTS_F32, KVAD_CACHE_GROW);
    step(&f, 1, &ns);
    assert_true(f.engine->forward_ns == 0);
    kvad_engine_set_probe(f.engine, &f.probe);
    for (int i = 0; i < 30; i++) {
        const uint64_t *parts = f.probe.clocks[0].ns;
        uint64_t before = f.engine->forward_ns;
        kvad_probe_clear(&f.probe);
        step(&f, 1, &ns);
        uint64_t forward = f.engine->forward_ns - before;
        uint64_t beside = parts[KVAD_PART_RESERVE];
        assert_true(parts[KVAD_PART_SAMPLING] == 0);
        assert_in_range(forward, ns - beside - parts[KVAD_PART_OTHER], ns - beside);
    }
    kvad_engine_set_probe(f.engine, &f.probe);
    assert_true(f.engine->forward_ns == 0);
    tear_down(&f);
}

static void test_every_part_is_reached(void **state) {
    (void)state;
    struct fixture f;
    uint64_t ns;
    set_up(&f, KVAD_WEIGHTS_Q8, KVAD_CACHE_GROW);
    kvad_engine_set_probe(f.engine, &f.probe);
    step(&f, 20, &ns);
    for (int i = 0; i < 20; i++)
        step(&f, 1, &ns);
    kvad_probe_serial(&f.probe, KVAD_PART_SAMPLING);
    for (int part = 0; part < KVAD_PART_COUNT; part++)
        if (kvad_probe_ns(&f.probe, (enum kvad_part)part) == 0)
            fail_msg("no time in part %s", kvad_part_name((enum kvad_part)part));
    tear_down(&f);
}

static void test_weights_of_floats_quantise_nothing(void **state) {
    (void)state;
    struct fixture f;
    uint64_t ns;
    set_up(&f, KVAD_WEIGHTS_BF16, KVAD_CACHE_PAGED);
    kvad_engine_set_probe(f.engine, &f.probe);
    step(&f, 20, &ns);
    assert_true(kvad_probe_ns(&f.probe, KVAD_PART_QUANTISE) == 0);
    tear_down(&f);
}

static void test_a_probe_that_was_taken_away_counts_no_more(void **state) {
    (void)state;
    struct fixture f;
    uint64_t ns;
    set_up(&f, KVAD_WEIGHTS_F32, KVAD_CACHE_PAGED);
    kvad_engine_set_probe(f.engine, &f.probe);
    step(&f, 1, &ns);
    kvad_engine_set_probe(f.engine, NULL);
    kvad_probe_clear(&f.probe);
    step(&f, 1, &ns);
    for (int part = 0; part < KVAD_PART_COUNT; part++)
        assert_true(kvad_probe_ns(&f.probe, (enum kvad_part)part) == 0);
    tear_down(&f);
}

static void test_a_probe_changes_no_bit(void **state) {
    (void)state;
    struct fixture f;
    uint64_t ns;
    float logits[301];
    set_up(&f, KVAD_WEIGHTS_F32, KVAD_CACHE_PAGED);
    step(&f, 20, &ns);
    memcpy(logits, f.logits, sizeof logits);
    assert_int_equal(kvad_sequence_truncate(f.sequence, 0, NULL), KVAD_OK);
    kvad_engine_set_probe(f.engine, &f.probe);
    step(&f, 20, &ns);
    assert_memory_equal(logits, f.logits, sizeof logits);
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_a_step_add_up_to_the_step),
        cmocka_unit_test(test_the_time_of_the_forward_pass_is_that_of_its_parts),
        cmocka_unit_test(test_every_part_is_reached),
        cmocka_unit_test(test_weights_of_floats_quantise_nothing),
        cmocka_unit_test(test_a_probe_that_was_taken_away_counts_no_more),
        cmocka_unit_test(test_a_probe_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
