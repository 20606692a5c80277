/* The checks of kvad verify: right engines pass all of them, wrong ones fail with what differs, and
 * whatever happens leaves nothing behind. */
#include "lab/verify.h"

#include <math.h>
#include <string.h>

#include "golden.h"
#include "lab/verify_internal.h"
#include "test.h"
#include "test_heap.h"
#include "tiny_model.h"

struct host {
    struct test_heap heap;
    struct kvad_model *model;
    size_t n_reports, stop_at; /* the report that says stop; 0: none */
    const char *spoil_at;      /* a report that begins so changes a weight of a layer */
    size_t spoil_layer;
    const struct kvad_engine *engine;
};

static bool report(void *user, const struct kvad_verify_check *check, const char *what) {
    struct host *host = user;
    assert_non_null(check->name);
    if (host->spoil_at && strncmp(what, host->spoil_at, strlen(host->spoil_at)) == 0) {
        float *weight = (float *)(void *)host->model->layers[host->spoil_layer].out.panels;
        *weight += 1;
        host->spoil_at = NULL;
    }
    return ++host->n_reports != host->stop_at;
}

static void engine_in_use(void *user, struct kvad_engine *engine) {
    struct host *host = user;
    host->engine = engine;
}

static struct kvad_verify_options options_for(struct host *host) {
    return (struct kvad_verify_options){.seed = 1,
                                        .n_threads = 2,
                                        .hook = test_heap_hook(&host->heap),
                                        .report = report,
                                        .engine_in_use = engine_in_use,
                                        .user = host};
}

static struct kvad_verify *open_verify(struct host *host,
                                       const struct kvad_verify_options *options) {
    struct kvad_verify *verify = NULL;
    struct kvad_error err;
    assert_ok(kvad_verify_open(host->model, options, &verify, &err), &err);
    return verify;
}

static void close_verify(struct host *host, struct kvad_verify **verify) {
    kvad_verify_close(verify);
    assert_null(*verify);
    assert_null(host->engine);
    assert_int_equal(atomic_load(&host->heap.n_live), 0);
}

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

/* ---------------------------------------------------------------- what is wrong fails */

/* A weight that changes between two cases makes paths differ, as a wrong cache would. */
static void spoil(const char *check, size_t layer, const char *at, const char *wanted) {
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    struct host host = {.model = tiny_model_build(tiny), .spoil_at = at, .spoil_layer = layer};
    struct kvad_verify_options options = options_for(&host);
    struct kvad_verify *verify = open_verify(&host, &options);
    struct kvad_verify_result result;
    struct kvad_error err;
    assert_ok(kvad_verify_run(verify, kvad_verify_find(check), &result, &err), &err);
    assert_null(host.spoil_at);
    if (result.verdict != KVAD_VERDICT_FAIL) print_error("%s passes\n", check);
    assert_int_equal(result.verdict, KVAD_VERDICT_FAIL);
    assert_true(result.difference.is_known);
    assert_true(result.difference.got != result.difference.wanted);
    char text[700];
    kvad_verify_describe(&result, text, sizeof text);
    if (!strstr(text, wanted)) print_error("\"%s\" is not in: %s\n", wanted, text);
    assert_non_null(strstr(text, wanted));
    assert_true(strncmp(text, at, strlen(at)) == 0);
    kvad_verify_result_deinit(&result);
    close_verify(&host, &verify);
    kvad_model_release(&host.model);
    tiny_model_destroy(tiny);
}

static void test_a_failed_check_names_the_case_the_position_and_the_layer(void **state) {
    (void)state;
    /* The second layer's output weights: the first position that is computed shows it, after layer
     * 2. */
    spoil("chunks", 1, "chunks of 7", ": position 0, layer 2, element 0: ");
    spoil("policies", 1, "grow", ": position 0, layer 2, element 0: ");
    spoil("batch", 1, "a slot used again", ": position 0, layer 2, element 0: ");
    spoil("greedy", 1, "208 tokens, static", ": position 15, logits, element ");
    spoil("preemption", 1, "a pool of 5 blocks without", ": position 12, logits, element ");
    spoil("reference", 1, "float64", ": position ");
    spoil("order", 1, "paged", "K of layer 3");
    spoil("classic", 0, "token 60", ": position 60, layer 1, element 0: ");
}

static void test_rows_are_the_same_if_their_bits_are_and_nan_is_only_nan(void **state) {
    (void)state;
    static const struct {
        float got, wanted;
        bool is_same;
    } cases[] = {{1, 1, true},    {1, 1.0000001f, false}, {0, -0.0f, false},
                 {NAN, 1, false}, {1, NAN, false},        {-NAN, NAN, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvad_verify_result result = {.verdict = KVAD_VERDICT_PASS};
        struct verify_run run = {.result = &result};
        const float got[] = {5, cases[i].got}, wanted[] = {5, cases[i].wanted};
        struct kvad_verify_difference at = {.position = 3};
        assert_int_equal(verify_same(&run, at, got, wanted, 2), cases[i].is_same);
        assert_int_equal(result.verdict == KVAD_VERDICT_PASS, cases[i].is_same);
        assert_int_equal(result.n_compared, 2);
        if (cases[i].is_same) continue;
        assert_int_equal(result.difference.position, 3);
        assert_int_equal(result.difference.element, 1);
    }
}

/* docs/verify.md has these numbers. */
static void test_the_bound_is_the_one_that_is_stated(void **state) {
    (void)state;
    static const double of_kv[KVAD_KV_TYPE_COUNT] = {
        [KVAD_KV_F32] = 0, [KVAD_KV_F16] = 1e-3, [KVAD_KV_BF16] = 8e-3, [KVAD_KV_Q8] = 2e-2};
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    for (int i = 0; i < KVAD_WEIGHT_TYPE_COUNT * KVAD_KV_TYPE_COUNT; i++) {
        struct host host = {0};
        struct kvad_model_options of_model;
        struct kvad_error err;
        kvad_model_options_init(&of_model);
        of_model.weights = (enum kvad_weight_type)(i / KVAD_KV_TYPE_COUNT);
        assert_ok(tiny_model_try_build(tiny, &of_model, &host.model, &err), &err);
        struct kvad_verify_options options = options_for(&host);
        options.kv = (enum kvad_kv_type)(i % KVAD_KV_TYPE_COUNT);
        struct kvad_verify *verify = open_verify(&host, &options);
        struct kvad_verify_result result;
        assert_ok(kvad_verify_run(verify, kvad_verify_find("reference"), &result, &err), &err);
        bool is_narrow = of_model.weights == KVAD_WEIGHTS_Q8 || of_model.weights == KVAD_WEIGHTS_Q4;
        double noise = (is_narrow ? 6e-2 : 4e-6) + of_kv[options.kv];
        assert_true(fabs(result.bound.rms / (noise * sqrt(1.0 + tiny_odd.n_layers)) - 1) < 1e-12);
        assert_true(result.bound.max == 32 * result.bound.rms);
        kvad_verify_result_deinit(&result);
        close_verify(&host, &verify);
        kvad_model_release(&host.model);
    }
    tiny_model_destroy(tiny);
}

/* One number of all moves: too little for the RMS of all, too far for one. */
static bool move_one_number(void *user, const struct kvad_verify_check *check, const char *what) {
    struct kvad_verify **verify = user;
    const struct kvad_verify *v = *verify;
    (void)check;
    if (!v || strcmp(what, "float64") != 0) return true;
    size_t d_model = v->model->description.d_model, n = v->n * d_model;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)v->texts[0].hidden[i] * (double)v->texts[0].hidden[i];
    float *last = v->model->positions + (v->n - 1) * d_model;
    *last += (float)(3e-4 * sqrt(sum / (double)n));
    *verify = NULL; /* once */
    return true;
}

static void test_one_number_too_far_off_is_enough(void **state) {
    (void)state;
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    struct host host = {.model = tiny_model_build(tiny)};
    struct kvad_verify *verify = NULL, *to_move = NULL;
    struct kvad_verify_options options = options_for(&host);
    options.report = move_one_number;
    options.engine_in_use = NULL;
    options.user = &to_move;
    verify = to_move = open_verify(&host, &options);
    struct kvad_verify_result result;
    struct kvad_error err;
    assert_ok(kvad_verify_run(verify, kvad_verify_find("reference"), &result, &err), &err);
    assert_null(to_move);
    assert_int_equal(result.verdict, KVAD_VERDICT_FAIL);
    assert_true(result.layers[0].rms < result.bound.rms);
    assert_true(result.layers[0].max > result.bound.max);
    assert_int_equal(result.difference.position, tiny_odd.n_ctx - 1);
    assert_int_equal(result.difference.element, 0);
    kvad_verify_result_deinit(&result);
    close_verify(&host, &verify);
    kvad_model_release(&host.model);
    tiny_model_destroy(tiny);
}

static void test_a_check_that_compares_nothing_fails(void **state) {
    (void)state;
    static const struct kvad_verify_check unknown = {"unknown", "nothing with nothing"};
    struct tiny_model *tiny = tiny_model_create(&tiny_odd);
    struct host host = {.model = tiny_model_build(tiny)};
    struct kvad_verify_options options = options_for(&host);
    struct kvad_verify *verify = open_verify(&host, &options);
    struct kvad_verify_result result;
    struct kvad_error err;
    assert_ok(kvad_verify_run(verify, &unknown, &result, &err), &err);
    assert_int_equal(result.verdict, KVAD_VERDICT_FAIL);
    assert_string_equal(result.text, "nothing was compared");
    kvad_verify_result_deinit(&result);
    close_verify(&host, &verify);
    kvad_model_release(&host.model);
    tiny_model_destroy(tiny);
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
        cmocka_unit_test(test_a_failed_check_names_the_case_the_position_and_the_layer),
        cmocka_unit_test(test_rows_are_the_same_if_their_bits_are_and_nan_is_only_nan),
        cmocka_unit_test(test_the_bound_is_the_one_that_is_stated),
        cmocka_unit_test(test_one_number_too_far_off_is_enough),
        cmocka_unit_test(test_a_check_that_compares_nothing_fails),
        cmocka_unit_test(test_the_same_seed_does_the_same_and_another_one_does_not),
        cmocka_unit_test(test_an_interrupt_ends_a_check_without_a_verdict),
        cmocka_unit_test(test_memory_that_runs_out_leaves_nothing_behind),
        cmocka_unit_test(test_an_unknown_level_is_refused),
        cmocka_unit_test(test_json_holds_every_check_and_the_errors_by_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
