/* The checks of kvad verify on what is wrong: they fail, and say what differs and where. */
#include <math.h>

#include "lab/verify_internal.h"
#include "tiny_model.h"
#include "verify_host.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failed_check_names_the_case_the_position_and_the_layer),
        cmocka_unit_test(test_rows_are_the_same_if_their_bits_are_and_nan_is_only_nan),
        cmocka_unit_test(test_the_bound_is_the_one_that_is_stated),
        cmocka_unit_test(test_one_number_too_far_off_is_enough),
        cmocka_unit_test(test_a_check_that_compares_nothing_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
