/* The checks of kvad verify on what is right: all pass, and whatever happens leaves nothing
 * behind. */
#include <string.h>

#include "golden.h"
#include "tiny_model.h"
#include "verify_host.h"

struct passed {
    size_t n_skipped;
    uint64_t n_compared;
};

/* All checks. */
static struct passed pass_all(struct kvad_model *model, struct kvad_verify_options options,
                              const char *name) {
    struct host host = {.model = model};
    struct passed passed = {0};
    options.hook = test_heap_hook(&host.heap);
    options.report = report;
    options.engine_in_use = engine_in_use;
    options.user = &host;
    struct kvad_verify *verify = open_verify(&host, &options);
    const struct kvad_verify_check *check;
    for (unsigned i = 0; (check = kvad_verify_check(i)); i++) {
        struct kvad_verify_result result;
        struct kvad_error err;
        assert_ok(kvad_verify_run(verify, check, &result, &err), &err);
        char text[700];
        kvad_verify_describe(&result, text, sizeof text);
        if (result.verdict == KVAD_VERDICT_FAIL)
            print_error("%s, %s: %s\n", name, check->name, text);
        assert_int_not_equal(result.verdict, KVAD_VERDICT_FAIL);
        if (result.verdict == KVAD_VERDICT_PASS) assert_true(result.n_compared > 0);
        if (result.verdict == KVAD_VERDICT_SKIP) assert_true(strlen(result.text) > 0);
        assert_int_equal(strlen(result.where), 0);
        passed.n_skipped += result.verdict == KVAD_VERDICT_SKIP;
        passed.n_compared += result.n_compared;
        kvad_verify_result_deinit(&result);
    }
    close_verify(&host, &verify);
    return passed;
}

/* ---------------------------------------------------------------- what is right passes */

static void test_every_check_has_a_name_of_its_own(void **state) {
    (void)state;
    const struct kvad_verify_check *check;
    unsigned n = 0;
    for (; (check = kvad_verify_check(n)); n++) {
        assert_ptr_equal(kvad_verify_find(check->name), check);
        assert_true(strlen(check->compares) > 10);
    }
    assert_true(n >= 16);
    assert_null(kvad_verify_check(n + 1));
    assert_null(kvad_verify_find("no such check"));
}

static void test_models_of_the_fixtures_pass(void **state) {
    (void)state;
    static const char *const names[] = {"hf-gpt2/wide-two-chunks",      "hf-gpt2/odd",
                                        "hf-gpt2/relu-inverse-layer",   "nanogpt/compiled-padded",
                                        "hand-written/lecture-wrapped", "hand-written/mingpt"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *folder = golden_folder(names[i]);
        if (!folder) continue;
        struct golden golden;
        golden_open(&golden, folder);
        struct kvad_model *model = golden_load(&golden);
        pass_all(model, (struct kvad_verify_options){.seed = i, .n_threads = 2}, names[i]);
        kvad_model_release(&model);
        golden_close(&golden);
        n++;
    }
    assert_true(n >= 2);
}

static void test_every_type_of_cache_and_weights_passes(void **state) {
    (void)state;
    struct tiny_model *tiny = tiny_model_create(&tiny_gqa);
    for (int i = 0; i < KVAD_WEIGHT_TYPE_COUNT; i++) {
        struct kvad_model_options options;
        kvad_model_options_init(&options);
        options.weights = (enum kvad_weight_type)i;
        struct kvad_model *model;
        struct kvad_error err;
        assert_ok(tiny_model_try_build(tiny, &options, &model, &err), &err);
        struct kvad_verify_options verify = {.n_threads = 1,
                                             .kv = (enum kvad_kv_type)(i % KVAD_KV_TYPE_COUNT)};
        pass_all(model, verify, kvad_weight_type_name(options.weights));
        kvad_model_release(&model);
    }
    tiny_model_destroy(tiny);
}

static void test_the_full_level_passes_and_compares_more(void **state) {
    (void)state;
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    struct kvad_model *model = tiny_model_build(tiny);
    struct kvad_verify_options options = {.n_threads = 1, .kv = KVAD_KV_Q8};
    struct passed quick = pass_all(model, options, "quick");
    options.level = KVAD_VERIFY_FULL;
    struct passed full = pass_all(model, options, "full");
    assert_int_equal(full.n_skipped, 0);
    assert_true(full.n_compared > 2 * quick.n_compared);
    kvad_model_release(&model);
    tiny_model_destroy(tiny);
}

static void test_what_a_short_context_has_no_room_for_says_so(void **state) {
    (void)state;
    struct tiny_sizes sizes = tiny_odd;
    static const uint32_t lengths[] = {1, 2, 5, 16, 17, 18, 20, 33, 34, 47, 48};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        sizes.n_ctx = lengths[i];
        struct tiny_model *tiny = tiny_model_create(&sizes);
        struct kvad_model *model = tiny_model_build(tiny);
        struct kvad_verify_options options = {.n_threads = 1};
        size_t n = pass_all(model, options, "short").n_skipped;
        size_t least = lengths[i] < 18 ? 3 : lengths[i] < 48, most = lengths[i] < 20 ? 9 : least;
        assert_in_range(n, least, most);
        kvad_model_release(&model);
        tiny_model_destroy(tiny);
    }
}

static void test_the_same_seed_does_the_same_and_another_one_does_not(void **state) {
    (void)state;
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    struct host host = {.model = tiny_model_build(tiny)};
    static const uint64_t seeds[] = {7, 7, 8};
    double rms[3];
    for (size_t i = 0; i < 3; i++) {
        struct kvad_verify_options options = options_for(&host);
        options.seed = seeds[i];
        struct kvad_verify *verify = open_verify(&host, &options);
        struct kvad_verify_result result;
        struct kvad_error err;
        assert_ok(kvad_verify_run(verify, kvad_verify_find("reference"), &result, &err), &err);
        assert_int_equal(result.n_layers, tiny_odd.n_layers + 1);
        rms[i] = result.logits.rms;
        assert_true(rms[i] > 0 && rms[i] < result.bound.rms);
        kvad_verify_result_deinit(&result);
        close_verify(&host, &verify);
    }
    assert_true(rms[0] == rms[1] && rms[0] != rms[2]);
    kvad_model_release(&host.model);
    tiny_model_destroy(tiny);
}

/* ---------------------------------------------------------------- no verdict */

static void test_an_interrupt_ends_a_check_without_a_verdict(void **state) {
    (void)state;
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    struct host host = {.model = tiny_model_build(tiny)};
    const struct kvad_verify_check *check;
    for (unsigned i = 0; (check = kvad_verify_check(i)); i++)
        for (size_t stop = 1; stop < 4; stop++) {
            host.n_reports = 0;
            host.stop_at = stop;
            struct kvad_verify_options options = options_for(&host);
            struct kvad_verify *verify = open_verify(&host, &options);
            struct kvad_verify_result result;
            struct kvad_error err = {0};
            enum kvad_status status = kvad_verify_run(verify, check, &result, &err);
            if (host.n_reports >= stop) {
                assert_int_equal(status, KVAD_ERR_CANCELLED);
                assert_int_equal(err.status, KVAD_ERR_CANCELLED);
            }
            kvad_verify_result_deinit(&result);
            close_verify(&host, &verify);
        }
    kvad_model_release(&host.model);
    tiny_model_destroy(tiny);
}

/* One check with every allocation failing in turn. */
static void run_without_memory(struct host *host, const struct kvad_verify_check *check) {
    struct kvad_verify_options options = options_for(host);
    bool is_done = false;
    size_t n_failed = 0, step = 1;
    for (size_t i = 1; !is_done; i += step) {
        test_heap_fail(&host->heap, i, i);
        struct kvad_verify *verify = NULL;
        struct kvad_verify_result result = {0};
        struct kvad_error err = {0};
        enum kvad_status status = kvad_verify_open(host->model, &options, &verify, &err);
        if (status == KVAD_OK) status = kvad_verify_run(verify, check, &result, &err);
        if (status != KVAD_OK) assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        if (status != KVAD_OK) assert_true(strlen(err.text) > 0);
        is_done = status == KVAD_OK && atomic_load(&host->heap.n_requests) < i;
        n_failed += status != KVAD_OK;
        step = i < 60 ? 1 : 1 + i / 5;
        kvad_verify_result_deinit(&result);
        close_verify(host, &verify);
    }
    assert_true(n_failed > 10);
    test_heap_fail(&host->heap, 0, 0);
}

static void test_memory_that_runs_out_leaves_nothing_behind(void **state) {
    (void)state;
    struct tiny_sizes sizes = tiny_odd;
    sizes.n_ctx = 21;
    struct tiny_model *tiny = tiny_model_create(&sizes);
    struct host host = {.model = tiny_model_build(tiny)};
    static const char *const names[] = {"reference", "order", "fork", "prefix", "preemption"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        run_without_memory(&host, kvad_verify_find(names[i]));
    kvad_model_release(&host.model);
    tiny_model_destroy(tiny);
}

static void test_an_unknown_level_is_refused(void **state) {
    (void)state;
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    struct host host = {.model = tiny_model_build(tiny)};
    struct kvad_verify_options options = options_for(&host);
    options.cpu = "abacus";
    struct kvad_verify *verify = NULL;
    struct kvad_error err;
    assert_int_equal(kvad_verify_open(host.model, &options, &verify, &err), KVAD_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "abacus"));
    close_verify(&host, &verify);
    kvad_model_release(&host.model);
    tiny_model_destroy(tiny);
}

/* ---------------------------------------------------------------- JSON */

static void test_json_holds_every_check_and_the_errors_by_layer(void **state) {
    (void)state;
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    struct host host = {.model = tiny_model_build(tiny)};
    struct kvad_verify_options options = options_for(&host);
    struct kvad_verify *verify = open_verify(&host, &options);
    static const char *const names[] = {"reference", "blocks"};
    struct kvad_verify_result results[2];
    struct kvad_error err;
    for (size_t i = 0; i < 2; i++)
        assert_ok(kvad_verify_run(verify, kvad_verify_find(names[i]), &results[i], &err), &err);
    json_t *object = kvad_verify_json(verify, "m\xff", results, 2);
    assert_non_null(object);
    assert_int_equal(json_integer_value(json_object_get(object, "passed")), 2);
    assert_int_equal(json_array_size(json_object_get(object, "checks")), 2);
    json_t *layers = json_object_get(json_object_get(object, "reference"), "layers");
    assert_int_equal(json_array_size(layers), tiny_odd.n_layers + 1);
    assert_true(json_is_string(json_object_get(json_object_get(object, "machine"), "cpu")));
    json_decref(object);
    for (size_t i = 0; i < 2; i++)
        kvad_verify_result_deinit(&results[i]);
    close_verify(&host, &verify);
    kvad_model_release(&host.model);
    tiny_model_destroy(tiny);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_check_has_a_name_of_its_own),
        cmocka_unit_test(test_models_of_the_fixtures_pass),
        cmocka_unit_test(test_every_type_of_cache_and_weights_passes),
        cmocka_unit_test(test_the_full_level_passes_and_compares_more),
        cmocka_unit_test(test_what_a_short_context_has_no_room_for_says_so),
        cmocka_unit_test(test_the_same_seed_does_the_same_and_another_one_does_not),
        cmocka_unit_test(test_an_interrupt_ends_a_check_without_a_verdict),
        cmocka_unit_test(test_memory_that_runs_out_leaves_nothing_behind),
        cmocka_unit_test(test_an_unknown_level_is_refused),
        cmocka_unit_test(test_json_holds_every_check_and_the_errors_by_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
