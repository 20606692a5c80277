#include "lab/bench.h"

#include "engine/probe.h"
#include "lab_host.h"

#define LIST(fits, ...)                                                                            \
    ((struct kvad_bench_list){(const uint32_t[]){__VA_ARGS__},                                     \
                              sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), fits})

static struct kvad_bench_options options_for(struct host *host) {
    static const uint32_t weights[] = {KVAD_WEIGHTS_F32}, kv[] = {KVAD_KV_F32};
    static const uint32_t policies[] = {KVAD_CACHE_NONE, KVAD_CACHE_GROW, KVAD_CACHE_STATIC,
                                        KVAD_CACHE_PAGED};
    static const uint32_t contexts[] = {5, 20}, prefills[] = {6, 30}, batches[] = {1, 3};
    return (struct kvad_bench_options){.open_model = open_model,
                                       .user = host,
                                       .weights = {weights, 1, false},
                                       .kv = {kv, 1, false},
                                       .policies = {policies, 4, false},
                                       .contexts = {contexts, 2, false},
                                       .prefills = {prefills, 2, false},
                                       .batches = {batches, 2, false},
                                       .n_rounds = 3,
                                       .sample_seconds = 1e-6,
                                       .ceiling_seconds = 1e-6,
                                       .n_threads = 2,
                                       .report = report,
                                       .engine_in_use = engine_in_use};
}

static void run(const struct kvad_bench_options *options, struct kvad_bench_result *result) {
    struct kvad_error err;
    assert_ok(kvad_bench_run(options, result, &err), &err);
}

static void assert_measured(const struct kvad_bench_case *c) {
    assert_int_equal(c->ms.n, 3);
    assert_true(c->ms.min > 0 && c->ms.min <= c->ms.median && c->ms.median <= c->ms.max);
    assert_true(c->samples[0] == c->ms.min && c->samples[2] == c->ms.max);
    assert_true(c->bytes > c->kv_bytes && c->kv_bytes > 0 && c->flops > 0);
    assert_true(c->percent_of_read.median > 0 && c->percent_of_compute.median > 0);
    assert_true(c->percent_of_ceiling >= c->percent_of_read.median);
    assert_true(c->percent_of_ceiling >= c->percent_of_compute.median);
    assert_true(c->read_rate > 0 && c->fma_rate > 0);
    assert_true(c->n_steps > 0 && c->parts_wall_ms > 0);
    assert_true(c->named_percent > 0 && c->named_percent <= 100);
    assert_true(c->token >= 0 && c->token < 301);
}

static void test_every_case_is_measured(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_bench_options options = options_for(&host);
    struct kvad_bench_result result;
    run(&options, &result);
    assert_false(result.is_void);
    assert_int_equal(result.n_cases, 2 * 4 + 2 + 2);
    size_t n[3] = {0};
    for (size_t i = 0; i < result.n_cases; i++) {
        assert_measured(&result.cases[i]);
        n[result.cases[i].kind]++;
    }
    assert_int_equal(n[KVAD_BENCH_DECODE], 8);
    assert_int_equal(n[KVAD_BENCH_PREFILL], 2);
    assert_int_equal(n[KVAD_BENCH_BATCH], 2);
    assert_int_equal(result.cases[0].policy, KVAD_CACHE_NONE);
    assert_int_equal(result.cases[7].policy, KVAD_CACHE_PAGED);
    assert_int_equal(result.cases[7].context, 20);
    assert_int_equal(result.cases[11].n_sequences, 3);
    /* A batch's first sequence is the one that was decoded alone. */
    assert_int_equal(result.cases[11].token, result.cases[0].token);
    assert_int_equal(result.n_threads, 2);
    assert_int_equal(result.model.n_layers, 2);
    assert_true(result.models[0].read_rate.n == 12 * 3 && result.models[0].load_ms > 0);
    kvad_bench_result_deinit(&result);
}

static void test_progress_goes_forward_and_no_engine_is_left_in_use(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_bench_options options = options_for(&host);
    struct kvad_bench_result result;
    run(&options, &result);
    assert_int_equal(host.n_reports, 12 * 5);
    assert_false(host.went_back);
    assert_null(host.engine);
    kvad_bench_result_deinit(&result);
}

static void test_types_of_weights_and_cache_are_all_measured(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_bench_options options = options_for(&host);
    options.weights = LIST(false, KVAD_WEIGHTS_Q8, KVAD_WEIGHTS_BF16);
    options.kv = LIST(false, KVAD_KV_F32, KVAD_KV_F16);
    options.policies = LIST(false, KVAD_CACHE_PAGED);
    options.contexts = LIST(false, 20);
    options.prefills = options.batches = (struct kvad_bench_list){0};
    struct kvad_bench_result result;
    run(&options, &result);
    assert_int_equal(host.n_models, 2);
    assert_int_equal(result.n_models, 2);
    assert_int_equal(result.n_cases, 4);
    assert_int_equal(result.cases[0].weights, KVAD_WEIGHTS_Q8);
    assert_int_equal(result.cases[1].kv, KVAD_KV_F16);
    assert_int_equal(result.cases[2].weights, KVAD_WEIGHTS_BF16);
    assert_true(result.cases[1].kv_bytes == result.cases[0].kv_bytes / 2);
    assert_true(result.cases[0].bytes < result.cases[2].bytes);
    assert_true(result.cases[2].dot_rate == 0);
    kvad_bench_result_deinit(&result);
}

static void test_lists_are_sorted_and_each_number_counts_once(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_bench_options options = options_for(&host);
    options.policies = LIST(false, KVAD_CACHE_STATIC);
    options.contexts = LIST(false, 20, 5, 20);
    options.prefills = LIST(false, 9, 9);
    options.batches = LIST(false, 2, 1, 2);
    struct kvad_bench_result result;
    run(&options, &result);
    assert_int_equal(result.n_cases, 2 + 1 + 2);
    assert_int_equal(result.cases[0].context, 5);
    assert_int_equal(result.cases[3].n_sequences, 1);
    kvad_bench_result_deinit(&result);
}

/* The model has room for 64 tokens: a context of 63 and one more. */
static void test_usual_lengths_shrink_to_the_model(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_bench_options options = options_for(&host);
    options.policies = LIST(false, KVAD_CACHE_PAGED);
    options.contexts = LIST(true, 16, 512, 1000);
    options.prefills = LIST(true, 16, 512);
    options.batches = LIST(true, 2);
    struct kvad_bench_result result;
    run(&options, &result);
    assert_int_equal(result.n_cases, 2 + 2 + 1);
    assert_int_equal(result.cases[1].context, 63);
    assert_int_equal(result.cases[3].n_tokens, 64);
    kvad_bench_result_deinit(&result);
}

static void test_lengths_asked_for_are_refused_when_too_long(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_bench_options options = options_for(&host);
    struct kvad_bench_result result;
    struct kvad_error err;
    options.contexts = LIST(false, 16, 64);
    assert_fails(kvad_bench_run(&options, &result, &err), KVAD_ERR_CONTEXT_FULL, &err,
                 "context 64");
    kvad_bench_result_deinit(&result);
    options = options_for(&host);
    options.prefills = LIST(false, 65);
    assert_fails(kvad_bench_run(&options, &result, &err), KVAD_ERR_CONTEXT_FULL, &err,
                 "prefill 65");
    kvad_bench_result_deinit(&result);
}

static void test_empty_lists_are_refused(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_bench_options options = options_for(&host);
    struct kvad_bench_result result;
    struct kvad_error err;
    options.policies.n = 0;
    assert_fails(kvad_bench_run(&options, &result, &err), KVAD_ERR_ARGUMENT, &err, "at least one");
    kvad_bench_result_deinit(&result);
    assert_int_equal(host.n_models, 0);
}

/* A weight changes between two policies: the later one gives other bits. */
static void test_another_answer_makes_the_run_void(void **state) {
    (void)state;
    static const char *const places[] = {"context 5, cache static", "context 20, cache paged",
                                         "prefill, 6 tokens", "batch, 3 sequences"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct host host = {.spoil_at = places[i]};
        struct kvad_bench_options options = options_for(&host);
        struct kvad_bench_result result;
        run(&options, &result);
        assert_true(result.is_void);
        if (!strstr(result.void_why, places[i])) print_error("why: %s\n", result.void_why);
        assert_non_null(strstr(result.void_why, places[i]));
        kvad_bench_result_deinit(&result);
    }
}

static void test_a_run_can_be_stopped_at_every_report(void **state) {
    (void)state;
    for (int i = 1; i <= 12 * 5; i++) {
        struct host host = {.stop_at = i};
        struct kvad_bench_options options = options_for(&host);
        struct kvad_bench_result result;
        struct kvad_error err;
        assert_fails(kvad_bench_run(&options, &result, &err), KVAD_ERR_CANCELLED, &err,
                     "interrupted");
        assert_null(host.engine);
        kvad_bench_result_deinit(&result);
    }
}

static void test_unknown_level_is_refused(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_bench_options options = options_for(&host);
    struct kvad_bench_result result;
    struct kvad_error err;
    options.cpu = "pentium";
    assert_fails(kvad_bench_run(&options, &result, &err), KVAD_ERR_UNSUPPORTED, &err, "pentium");
    kvad_bench_result_deinit(&result);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_case_is_measured),
        cmocka_unit_test(test_progress_goes_forward_and_no_engine_is_left_in_use),
        cmocka_unit_test(test_types_of_weights_and_cache_are_all_measured),
        cmocka_unit_test(test_lists_are_sorted_and_each_number_counts_once),
        cmocka_unit_test(test_usual_lengths_shrink_to_the_model),
        cmocka_unit_test(test_lengths_asked_for_are_refused_when_too_long),
        cmocka_unit_test(test_empty_lists_are_refused),
        cmocka_unit_test(test_another_answer_makes_the_run_void),
        cmocka_unit_test(test_a_run_can_be_stopped_at_every_report),
        cmocka_unit_test(test_unknown_level_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
