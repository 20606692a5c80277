/* Final probabilities against reference values: tests/data/sampling_cases.json holds logits,
 * history and parameters with what Hugging Face's logits processors give in float64 (presence and
 * frequency: OpenAI's formula). */
#include <jansson.h>
#include <math.h>

#include "test.h"

static json_t *cases;

static int load_cases(void **state) {
    (void)state;
    json_t *root = json_load_file("tests/data/sampling_cases.json", 0, NULL);
    cases = json_incref(json_object_get(root, "cases"));
    json_decref(root);
    return cases ? 0 : -1;
}

static int free_cases(void **state) {
    (void)state;
    json_decref(cases);
    return 0;
}

static unsigned stage_of(const char *name) {
    static const struct {
        const char *name;
        unsigned stage;
    } stages[] = {{"repetition_penalty", KVAD_STAGE_PENALTIES},
                  {"temperature", KVAD_STAGE_TEMPERATURE},
                  {"top_k", KVAD_STAGE_TOP_K},
                  {"top_p", KVAD_STAGE_TOP_P}};
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; ++i)
        if (strcmp(stages[i].name, name) == 0) return stages[i].stage;
    fail_msg("unknown stage %s", name);
    return 0;
}

static void read_order(const json_t *list, struct kvad_sampler_options *options) {
    for (size_t i = 0; i < json_array_size(list); ++i)
        options->order[i] = (unsigned char)stage_of(json_string_value(json_array_get(list, i)));
}

/* Every parameter must be known: a case is never checked without one of its parameters. */
static void read_params(const json_t *params, struct kvad_sampler_options *options) {
    const char *key;
    json_t *value;
    options->top_k_rule = KVAD_TOP_K_VALUE; /* Hugging Face's */
    json_object_foreach((json_t *)params, key, value) {
        double number = json_number_value(value);
        if (strcmp(key, "temperature") == 0)
            options->temperature = number;
        else if (strcmp(key, "top_k") == 0)
            options->top_k = (uint32_t)number;
        else if (strcmp(key, "top_p") == 0)
            options->top_p = number;
        else if (strcmp(key, "min_p") == 0)
            options->min_p = number;
        else if (strcmp(key, "typical_p") == 0)
            options->typical_p = number;
        else if (strcmp(key, "repetition_penalty") == 0)
            options->repetition_penalty = number;
        else if (strcmp(key, "presence_penalty") == 0)
            options->presence_penalty = number;
        else if (strcmp(key, "frequency_penalty") == 0)
            options->frequency_penalty = number;
        else if (strcmp(key, "no_repeat_ngram_size") == 0)
            options->no_repeat_ngram = (uint32_t)number;
        else if (strcmp(key, "order") == 0)
            read_order(value, options);
        else
            fail_msg("unknown parameter %s", key);
    }
}

static double number_at(const json_t *list, size_t i) {
    return json_number_value(json_array_get(list, i));
}

static bool is_excluded(const json_t *excluded, size_t id) {
    for (size_t i = 0; i < json_array_size(excluded); ++i)
        if ((size_t)number_at(excluded, i) == id) return true;
    return false;
}

enum { MAX_VOCAB = 64, MAX_HISTORY = 64 };

static double check_case(const json_t *one) {
    const json_t *logit_list = json_object_get(one, "logits");
    const json_t *history_list = json_object_get(one, "history");
    const json_t *wanted = json_object_get(one, "probabilities");
    const json_t *excluded = json_object_get(one, "excluded");
    size_t n = json_array_size(logit_list), n_history = json_array_size(history_list);
    assert_true(n <= MAX_VOCAB && n_history <= MAX_HISTORY && json_array_size(wanted) == n);
    float logits[MAX_VOCAB];
    int32_t history[MAX_HISTORY];
    double got[MAX_VOCAB];
    for (size_t i = 0; i < n; ++i)
        logits[i] = (float)number_at(logit_list, i);
    for (size_t i = 0; i < n_history; ++i)
        history[i] = (int32_t)number_at(history_list, i);

    struct kvad_sampler_options options;
    struct kvad_sampler *sampler = NULL;
    struct kvad_error err;
    kvad_sampler_options_init(&options);
    read_params(json_object_get(one, "params"), &options);
    assert_ok(kvad_sampler_create(&options, (uint32_t)n, NULL, &sampler, &err), &err);
    assert_ok(kvad_sampler_probabilities(sampler, logits, history, n_history, NULL, 0, got, &err),
              &err);
    kvad_sampler_destroy(&sampler);

    double worst = 0, sum = 0;
    for (size_t i = 0; i < n; ++i) {
        double want = number_at(wanted, i);
        /* Zero exactly where the reference is: excluded, or below the smallest double. */
        assert_int_equal(got[i] == 0, want == 0);
        if (is_excluded(excluded, i)) assert_true(want == 0);
        if (want > 0) worst = fmax(worst, fabs(got[i] - want) / want);
        sum += got[i];
    }
    assert_true(fabs(sum - 1) < 1e-12);
    return worst;
}

static void test_probabilities_equal_the_reference(void **state) {
    (void)state;
    double worst = 0;
    assert_int_equal(json_array_size(cases), 412);
    for (size_t i = 0; i < json_array_size(cases); ++i) {
        const json_t *one = json_array_get(cases, i);
        double error = check_case(one);
        if (!(error <= 1e-6))
            print_error("%s: %g\n", json_string_value(json_object_get(one, "name")), error);
        assert_true(error <= 1e-6);
        worst = fmax(worst, error);
    }
    print_message("largest relative error: %.2g\n", worst);
    assert_true(worst < 1e-10); /* what double gives; far below the promise */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probabilities_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, load_cases, free_cases);
}
