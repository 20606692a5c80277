/* What depends on the ids so far: penalties, windows, n-grams, and the order of stages. */
#include <math.h>

#include "random.h"
#include "sampling.h"

/* bugs.md SAMP-12 */
static void test_repetition_penalty_never_raises_a_seen_token(void **state) {
    (void)state;
    const float rows[][3] = {{-1, -2, -1.5f}, {2, 1, 3}, {0, 0, 0}, {-0.5f, 4, -3}};
    const int32_t history[] = {0};
    for (size_t r = 0; r < 4; ++r) {
        struct kvad_sampler_options options = neutral();
        double before[3], after[3];
        probabilities_after(&options, rows[r], 3, history, 1, before);
        options.repetition_penalty = 1.5;
        probabilities_after(&options, rows[r], 3, history, 1, after);
        assert_true(rows[r][0] == 0 ? after[0] == before[0] : after[0] < before[0]);
        assert_true(after[1] >= before[1] && after[2] >= before[2]);
    }
}

/* bugs.md SAMP-13 */
static void test_repetition_counts_once_and_frequency_each_time(void **state) {
    (void)state;
    const float logits[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int32_t once[] = {7}, often[] = {7, 7, 7};
    struct kvad_sampler_options options = neutral();
    double p_once[8], p_often[8], plain[8];
    probabilities_after(&options, logits, 8, often, 3, plain);
    options.repetition_penalty = 1.3;
    probabilities_after(&options, logits, 8, once, 1, p_once);
    probabilities_after(&options, logits, 8, often, 3, p_often);
    assert_memory_equal(p_once, p_often, sizeof p_once);

    options = neutral();
    options.presence_penalty = 0.5;
    probabilities_after(&options, logits, 8, once, 1, p_once);
    probabilities_after(&options, logits, 8, often, 3, p_often);
    assert_memory_equal(p_once, p_often, sizeof p_once);

    options = neutral();
    options.frequency_penalty = 0.5;
    probabilities_after(&options, logits, 8, often, 3, p_often);
    /* log odds against another token fall by 3 x 0.5 */
    double fall = log(plain[7] / plain[0]) - log(p_often[7] / p_often[0]);
    assert_true(fabs(fall - 1.5) < 1e-12);
}

static void test_penalties_see_the_window_alone(void **state) {
    (void)state;
    const float logits[] = {1, 1, 1};
    const int32_t history[] = {0, 1, 2, 2};
    struct kvad_sampler_options options = neutral();
    options.presence_penalty = 1;
    options.penalty_window = 3;
    double p[3];
    probabilities_after(&options, logits, 3, history, 4, p);
    assert_true(p[0] > p[1] && p[1] == p[2]);
    options.penalty_window = 0; /* all */
    probabilities_after(&options, logits, 3, history, 4, p);
    assert_true(p[0] == p[1] && p[1] == p[2]);
    options.penalty_window = 100;
    probabilities_after(&options, logits, 3, history, 4, p);
    assert_true(p[0] == p[1] && p[1] == p[2]);
}

static void test_one_call_leaves_no_counts_for_the_next(void **state) {
    (void)state;
    const float logits[] = {1, 2, 3};
    const int32_t history[] = {2, 2, 1};
    struct kvad_sampler_options options = neutral();
    options.frequency_penalty = 0.7;
    struct kvad_sampler *sampler = make_sampler(&options, 3);
    struct kvad_error err;
    double first[3], again[3], fresh[3];
    assert_ok(kvad_sampler_probabilities(sampler, logits, history, 3, NULL, 0, first, &err), &err);
    assert_ok(kvad_sampler_probabilities(sampler, logits, history, 3, NULL, 0, again, &err), &err);
    assert_memory_equal(first, again, sizeof first);
    assert_ok(kvad_sampler_probabilities(sampler, logits, NULL, 0, NULL, 0, again, &err), &err);
    struct kvad_sampler_options plain = neutral();
    probabilities_of(&plain, logits, 3, fresh);
    assert_memory_equal(again, fresh, sizeof fresh);
    kvad_sampler_destroy(&sampler);
}

static void test_no_repeat_ngram_excludes_what_followed_before(void **state) {
    (void)state;
    const float logits[] = {1, 1, 1, 1, 1};
    const int32_t history[] = {0, 1, 2, 0, 1, 3, 0, 1};
    struct kvad_sampler_options options = neutral();
    double p[5];
    options.no_repeat_ngram = 3; /* 0 1 was followed by 2 and by 3 */
    probabilities_after(&options, logits, 5, history, 8, p);
    ASSERT_SURVIVORS(p, 5, 0, 1, 4);
    options.no_repeat_ngram = 1; /* nothing twice */
    probabilities_after(&options, logits, 5, history, 8, p);
    ASSERT_SURVIVORS(p, 5, 4);
    options.no_repeat_ngram = 9; /* longer than the history */
    probabilities_after(&options, logits, 5, history, 8, p);
    ASSERT_SURVIVORS(p, 5, 0, 1, 2, 3, 4);
    options.no_repeat_ngram = 2;
    probabilities_after(&options, logits, 5, (const int32_t[]){4, 4}, 2, p);
    ASSERT_SURVIVORS(p, 5, 0, 1, 2, 3); /* an overlapping repeat counts */
    options.no_repeat_ngram = 5;
    probabilities_after(&options, logits, 5, NULL, 0, p);
    ASSERT_SURVIVORS(p, 5, 0, 1, 2, 3, 4);
}

static void test_order_of_stages_is_obeyed(void **state) {
    (void)state;
    /* Penalty 2 brings id 2 from the first to the last place: top-k before it keeps 2 and 1, after
     * it 1 and 0. */
    const float logits[] = {4, 5, 6};
    const int32_t history[] = {2};
    struct kvad_sampler_options options = neutral();
    options.repetition_penalty = 2;
    options.top_k = 2;
    double p[3];
    probabilities_after(&options, logits, 3, history, 1, p);
    ASSERT_SURVIVORS(p, 3, 0, 1);
    static const unsigned char order[] = {KVAD_STAGE_TOP_K, KVAD_STAGE_PENALTIES};
    memcpy(options.order, order, sizeof order);
    probabilities_after(&options, logits, 3, history, 1, p);
    ASSERT_SURVIVORS(p, 3, 1, 2);
    assert_true(fabs(p[2] / p[1] - exp(3.0 - 5.0)) < 1e-12);

    /* Frequency before temperature 0.5 counts twice as much as after it. */
    options = neutral();
    options.temperature = 0.5;
    options.frequency_penalty = 1;
    static const unsigned char late[] = {KVAD_STAGE_TEMPERATURE, KVAD_STAGE_PENALTIES};
    probabilities_after(&options, logits, 3, history, 1, p);
    assert_true(fabs(log(p[2] / p[1]) - (6 - 1 - 5) / 0.5) < 1e-12);
    memcpy(options.order, late, sizeof late);
    probabilities_after(&options, logits, 3, history, 1, p);
    assert_true(fabs(log(p[2] / p[1]) - ((6 - 5) / 0.5 - 1)) < 1e-12);
}

/* A temperature after a filter that weighed the tokens weighs them anew. */
static void test_temperature_after_a_filter_counts(void **state) {
    (void)state;
    const float logits[] = {4, 5, 6, -20};
    struct kvad_sampler_options options = neutral();
    options.top_p = 0.999;
    options.temperature = 0.25;
    static const unsigned char order[] = {KVAD_STAGE_TOP_P, KVAD_STAGE_TEMPERATURE};
    memcpy(options.order, order, sizeof order);
    double p[4];
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 0, 1, 2); /* as at temperature 1: at 0.25 one alone has 0.98 */
    assert_true(fabs(log(p[2] / p[1]) - 4) < 1e-12);
}

/* What a filter removed stays removed when a later stage changes scores and another filter ranks
 * again. */
static void test_removed_tokens_stay_removed(void **state) {
    (void)state;
    const float logits[] = {4, 5, 6, 3};
    const struct kvad_logit_bias bias = {3, 50};
    struct kvad_sampler_options options = neutral();
    options.top_k = 3;
    options.top_p = 0.99999;
    options.logit_bias = &bias;
    options.n_logit_bias = 1;
    static const unsigned char order[] = {KVAD_STAGE_TOP_K, KVAD_STAGE_BIAS, KVAD_STAGE_TOP_P};
    memcpy(options.order, order, sizeof order);
    double p[4];
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 0, 1, 2);
}

/* Greedy with penalties is the arg-max of what the penalties leave. */
static void test_greedy_obeys_what_changes_scores(void **state) {
    (void)state;
    const float logits[] = {4, 5, 6};
    const int32_t history[] = {2};
    struct kvad_sampler_options options = neutral();
    options.temperature = 0;
    options.repetition_penalty = 2;
    double p[3];
    probabilities_after(&options, logits, 3, history, 1, p);
    ASSERT_SURVIVORS(p, 3, 1);
    options.repetition_penalty = 1;
    options.no_repeat_ngram = 1;
    probabilities_after(&options, logits, 3, history, 1, p);
    ASSERT_SURVIVORS(p, 3, 1);
    const float equal[] = {3, 5, 5};
    probabilities_after(&options, equal, 3, (const int32_t[]){0}, 1, p);
    ASSERT_SURVIVORS(p, 3, 1); /* the lowest id of equal ones here too */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repetition_penalty_never_raises_a_seen_token),
        cmocka_unit_test(test_repetition_counts_once_and_frequency_each_time),
        cmocka_unit_test(test_penalties_see_the_window_alone),
        cmocka_unit_test(test_one_call_leaves_no_counts_for_the_next),
        cmocka_unit_test(test_no_repeat_ngram_excludes_what_followed_before),
        cmocka_unit_test(test_order_of_stages_is_obeyed),
        cmocka_unit_test(test_temperature_after_a_filter_counts),
        cmocka_unit_test(test_removed_tokens_stay_removed),
        cmocka_unit_test(test_greedy_obeys_what_changes_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
