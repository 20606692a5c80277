/* Wrong values and ids are refused by name; memory is reserved once and given back. */
#include <limits.h>
#include <math.h>

#include "sampling.h"

static void assert_refused(const struct kvad_sampler_options *options, const char *part) {
    struct kvad_sampler *sampler = NULL;
    struct kvad_error err;
    assert_fails(kvad_sampler_create(options, 10, NULL, &sampler, &err), KVAD_ERR_ARGUMENT, &err,
                 part);
    assert_null(sampler);
}

static void test_numbers_out_of_range_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *field;
        size_t offset;
        double low, high; /* just outside */
    } fields[] = {
        {"temperature", offsetof(struct kvad_sampler_options, temperature), -1e-9, 1e31},
        {"top_p", offsetof(struct kvad_sampler_options, top_p), -0.1, 1.0001},
        {"min_p", offsetof(struct kvad_sampler_options, min_p), -0.1, 1.0001},
        {"typical_p", offsetof(struct kvad_sampler_options, typical_p), -0.1, 1.0001},
        {"repetition_penalty", offsetof(struct kvad_sampler_options, repetition_penalty), 0, 1e4},
        {"presence_penalty", offsetof(struct kvad_sampler_options, presence_penalty), -1e4, 1e4},
        {"frequency_penalty", offsetof(struct kvad_sampler_options, frequency_penalty), -1e4, 1e4},
    };
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; ++f) {
        const double wrong[] = {fields[f].low, fields[f].high, NAN, INFINITY, -INFINITY};
        for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; ++w) {
            struct kvad_sampler_options options = neutral();
            memcpy((char *)&options + fields[f].offset, &wrong[w], sizeof wrong[w]);
            assert_refused(&options, fields[f].field);
        }
    }
}

static void test_other_wrong_options_are_refused_by_name(void **state) {
    (void)state;
    struct kvad_sampler_options options = neutral();
    options.top_k_rule = (enum kvad_top_k_rule)7;
    assert_refused(&options, "top_k_rule");
    options = neutral();
    options.n_tokens = 11;
    assert_refused(&options, "n_tokens");
    options = neutral();
    options.struct_size = 0;
    assert_refused(&options, "kvad_sampler_options_init");
    options.struct_size = sizeof options + 8;
    assert_refused(&options, "kvad_sampler_options_init");
    options = neutral();
    struct kvad_sampler *sampler = NULL;
    struct kvad_error err;
    assert_fails(kvad_sampler_create(&options, 0, NULL, &sampler, &err), KVAD_ERR_ARGUMENT, &err,
                 "n_vocab");
}

static void test_wrong_orders_are_refused(void **state) {
    (void)state;
    struct kvad_sampler_options options = neutral();
    options.order[0] = KVAD_STAGE_TOP_K;
    options.order[1] = KVAD_STAGE_TOP_K;
    assert_refused(&options, "top_k twice");
    options = neutral();
    options.order[0] = KVAD_STAGE_COUNT;
    assert_refused(&options, "order[0]");
    options = neutral();
    options.order[0] = KVAD_STAGE_TEMPERATURE;
    options.top_p = 0.5; /* would be ignored */
    assert_refused(&options, "leaves out top_p");
    options = neutral();
    for (unsigned i = 0; i < KVAD_STAGE_COUNT; ++i)
        options.order[i] = (unsigned char)(8 - i);
    struct kvad_sampler *sampler = make_sampler(&options, 10); /* all eight, backwards */
    kvad_sampler_destroy(&sampler);
}

/* bugs.md SAMP-19, SAMP-20, SAMP-21 */
static void test_logit_bias_outside_the_vocabulary_is_refused(void **state) {
    (void)state;
    static const struct {
        struct kvad_logit_bias bias;
        const char *part; /* NULL: accepted */
    } cases[] = {
        {{-1, 5}, "id -1"},     {{INT32_MIN, 5}, "id -2147483648"},
        {{10, -100}, "id 10"},  {{INT32_MAX, 1}, "id 2147483647"},
        {{9, -100}, NULL},      {{0, 3e38f}, NULL},
        {{0, -INFINITY}, NULL}, {{3, INFINITY}, "is inf"}, /* what 1e39 is as a float */
        {{3, NAN}, "nan"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct kvad_sampler_options options = neutral();
        options.logit_bias = &cases[i].bias;
        options.n_logit_bias = 1;
        if (cases[i].part) {
            assert_refused(&options, cases[i].part);
            continue;
        }
        const float logits[10] = {0};
        double p[10];
        probabilities_of(&options, logits, 10, p);
        assert_true(cases[i].bias.bias > 0 ? p[cases[i].bias.id] == 1
                                           : p[cases[i].bias.id] < 1e-40);
    }
    const struct kvad_logit_bias twice[] = {{4, 1}, {5, 1}, {4, 2}};
    struct kvad_sampler_options options = neutral();
    options.logit_bias = twice;
    options.n_logit_bias = 3;
    assert_refused(&options, "id 4 twice");
    options.logit_bias = NULL;
    assert_refused(&options, "logit_bias is NULL");
}

static void test_ids_of_a_call_outside_the_vocabulary_are_refused(void **state) {
    (void)state;
    const float logits[10] = {0};
    static const int32_t wrong[] = {-1, 10, INT32_MIN, INT32_MAX};
    for (int kind = 0; kind < 4; ++kind) {
        struct kvad_sampler_options options = neutral();
        options.temperature = kind % 2 ? 0 : 1;
        options.repetition_penalty = kind / 2 ? 1.1 : 1;
        struct kvad_sampler *sampler = make_sampler(&options, 10);
        struct kvad_error err;
        int32_t token;
        for (size_t w = 0; w < 4; ++w) {
            const int32_t ids[] = {3, wrong[w]};
            assert_fails(kvad_sampler_draw(sampler, logits, NULL, 0, ids, 2, 0, &token, &err),
                         KVAD_ERR_ARGUMENT, &err, "banned[1]");
            if (kind / 2)
                assert_fails(kvad_sampler_draw(sampler, logits, ids, 2, NULL, 0, 0, &token, &err),
                             KVAD_ERR_ARGUMENT, &err, "history[1]");
        }
        kvad_sampler_destroy(&sampler);
    }
}

static void test_logits_that_are_not_finite_are_named(void **state) {
    (void)state;
    static const float wrong[] = {NAN, INFINITY};
    for (int kind = 0; kind < 4; ++kind) {
        struct kvad_sampler_options options = neutral();
        options.temperature = kind % 2 ? 0 : 1;
        options.presence_penalty = kind / 2 ? 1 : 0;
        struct kvad_sampler *sampler = make_sampler(&options, 10);
        for (size_t w = 0; w < 2; ++w) {
            float logits[10] = {0};
            logits[6] = wrong[w];
            struct kvad_error err;
            int32_t token = 5;
            double p[10] = {0.5};
            assert_fails(kvad_sampler_draw(sampler, logits, NULL, 0, NULL, 0, 0, &token, &err),
                         KVAD_ERR_NOT_FINITE, &err, "id 6");
            assert_fails(kvad_sampler_probabilities(sampler, logits, NULL, 0, NULL, 0, p, &err),
                         KVAD_ERR_NOT_FINITE, &err, "id 6");
            assert_int_equal(token, 5); /* results are written on success only */
            assert_true(p[0] == 0.5);
        }
        kvad_sampler_destroy(&sampler);
    }
}

/* ---------------------------------------------------------------- memory */

struct counter {
    size_t bytes, n_calls, fail_at; /* fail_at 0: never */
};

static void *counted_allocate(void *user, size_t size, size_t alignment) {
    struct counter *counter = user;
    void *memory = NULL;
    if (++counter->n_calls == counter->fail_at) return NULL;
    if (posix_memalign(&memory, alignment, size) != 0) return NULL;
    counter->bytes += size;
    return memory;
}

static void counted_release(void *user, void *memory, size_t size) {
    struct counter *counter = user;
    counter->bytes -= size;
    free(memory);
}

static struct kvad_sampler_options everything(const struct kvad_logit_bias *bias) {
    struct kvad_sampler_options options = neutral();
    options.temperature = 0.7;
    options.top_k = 8;
    options.top_p = 0.95;
    options.min_p = 0.01;
    options.typical_p = 0.9;
    options.repetition_penalty = 1.2;
    options.no_repeat_ngram = 3;
    options.logit_bias = bias;
    options.n_logit_bias = 1;
    return options;
}

static void test_no_call_allocates_after_create(void **state) {
    (void)state;
    struct counter counter = {0};
    struct kvad_allocator hook = {counted_allocate, counted_release, &counter};
    const struct kvad_logit_bias bias = {3, 1};
    const struct kvad_sampler_options options = everything(&bias);
    struct kvad_sampler *sampler = NULL;
    struct kvad_error err;
    assert_ok(kvad_sampler_create(&options, 10, &hook, &sampler, &err), &err);
    size_t n_calls = counter.n_calls;
    const float logits[10] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
    const int32_t history[] = {1, 2, 3, 1, 2};
    double p[10];
    for (uint64_t i = 0; i < 10; ++i) {
        int32_t token;
        assert_ok(kvad_sampler_draw(sampler, logits, history, 5, NULL, 0, i, &token, &err), &err);
    }
    assert_ok(kvad_sampler_probabilities(sampler, logits, history, 5, NULL, 0, p, &err), &err);
    assert_int_equal(counter.n_calls, n_calls);
    kvad_sampler_destroy(&sampler);
    assert_int_equal(counter.bytes, 0);
    kvad_sampler_destroy(&sampler); /* NULL is allowed */
}

static void test_every_failing_allocation_is_a_clean_error(void **state) {
    (void)state;
    const struct kvad_logit_bias bias = {3, 1};
    const struct kvad_sampler_options options = everything(&bias);
    for (size_t k = 1;; ++k) {
        struct counter counter = {.fail_at = k};
        struct kvad_allocator hook = {counted_allocate, counted_release, &counter};
        struct kvad_sampler *sampler = NULL;
        struct kvad_error err;
        enum kvad_status status = kvad_sampler_create(&options, 10, &hook, &sampler, &err);
        if (counter.n_calls < k) { /* all succeeded */
            assert_int_equal(status, KVAD_OK);
            assert_true(k > 5);
            kvad_sampler_destroy(&sampler);
            return;
        }
        assert_int_equal(status, KVAD_ERR_NO_MEMORY);
        assert_null(sampler);
        assert_int_equal(counter.bytes, 0);
    }
}

static void test_plain_greedy_needs_no_scratch(void **state) {
    (void)state;
    struct counter counter = {0};
    struct kvad_allocator hook = {counted_allocate, counted_release, &counter};
    struct kvad_sampler_options options = neutral();
    options.temperature = 0;
    struct kvad_sampler *sampler = NULL;
    struct kvad_error err;
    assert_ok(kvad_sampler_create(&options, 1000000, &hook, &sampler, &err), &err);
    assert_true(counter.bytes < 4096);
    kvad_sampler_destroy(&sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_out_of_range_are_refused_by_name),
        cmocka_unit_test(test_other_wrong_options_are_refused_by_name),
        cmocka_unit_test(test_wrong_orders_are_refused),
        cmocka_unit_test(test_logit_bias_outside_the_vocabulary_is_refused),
        cmocka_unit_test(test_ids_of_a_call_outside_the_vocabulary_are_refused),
        cmocka_unit_test(test_logits_that_are_not_finite_are_named),
        cmocka_unit_test(test_no_call_allocates_after_create),
        cmocka_unit_test(test_every_failing_allocation_is_a_clean_error),
        cmocka_unit_test(test_plain_greedy_needs_no_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
