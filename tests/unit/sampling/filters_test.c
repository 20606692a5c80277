/* Which tokens stay: temperature, top-k, top-p, min-p, typical, exclusions. */
#include <math.h>

#include "random.h"
#include "sampling.h"

/* ---------------------------------------------------------------- greedy and temperature */

/* bugs.md SAMP-9 */
static void test_temperature_zero_is_the_lowest_id_of_the_best(void **state) {
    (void)state;
    const float logits[] = {1, 3, 2, 3, -5};
    struct kvad_sampler_options options = neutral();
    options.temperature = 0;
    double p[5];
    probabilities_of(&options, logits, 5, p);
    ASSERT_SURVIVORS(p, 5, 1);
    struct kvad_sampler *sampler = make_sampler(&options, 5);
    for (uint64_t i = 0; i < 20; ++i)
        assert_int_equal(draw_at(sampler, logits, i), 1);
    kvad_sampler_destroy(&sampler);
}

/* Vocabularies longer than what is compared at once; few values, so that there are ties, both zeros
 * and infinities; some ids banned. Against one after the other. */
static void test_the_best_of_a_long_vocabulary_is_the_lowest_id_of_equal_ones(void **state) {
    (void)state;
    enum { N = 1600 };
    static const float values[] = {-INFINITY, -3e38f, -2, -1e-45f, -0.0f, 0.0f, 1e-45f, 3, 3e38f};
    static float logits[N];
    struct test_random random = {7};
    for (size_t round = 0; round < 3000; ++round) {
        size_t n = 1 + random_below(&random, N), n_values = 1 + random_below(&random, 9);
        int32_t banned[2], wanted = -1, got = -1;
        struct kvad_sampler_options options = neutral();
        options.temperature = 0;
        for (size_t i = 0; i < n; ++i)
            logits[i] = values[random_below(&random, n_values)];
        size_t odd = random_below(&random, n), kind = random_below(&random, 8);
        if (kind == 0) logits[odd] = INFINITY;
        if (kind == 1) logits[odd] = NAN;
        if (kind == 2) logits[odd] = -NAN;
        if (kind >= 3) logits[odd] = values[8];
        for (size_t i = 0; i < 2; ++i)
            banned[i] = (int32_t)(random_below(&random, 2) ? odd : random_below(&random, n));
        for (size_t i = 0; i < n; ++i)
            if ((int32_t)i != banned[0] && (int32_t)i != banned[1] && logits[i] > -INFINITY &&
                (wanted < 0 || logits[i] > logits[wanted]))
                wanted = (int32_t)i;
        struct kvad_sampler *sampler = make_sampler(&options, (uint32_t)n);
        enum kvad_status status =
            kvad_sampler_draw(sampler, logits, NULL, 0, banned, 2, 0, &got, NULL);
        kvad_sampler_destroy(&sampler);
        if (kind <= 2) assert_int_equal(status, KVAD_ERR_NOT_FINITE);
        if (kind > 2) assert_int_equal(status, wanted < 0 ? KVAD_ERR_ARGUMENT : KVAD_OK);
        assert_int_equal(got, kind <= 2 ? -1 : wanted);
    }
}

/* bugs.md SAMP-10, SAMP-11 */
static void test_tiny_temperatures_are_greedy_and_never_nan(void **state) {
    (void)state;
    static const double temperatures[] = {-0.0, 1e-4, 1e-7, 1e-8, 1e-38, 1e-45, 5e-324};
    const float rows[][4] = {{1, 3, 2.9f, -5},
                             {-100, -90, -95, -1e30f},
                             {1e30f, 3e38f, -3e38f, 0},
                             {0, 5, 4, -INFINITY}};
    for (size_t t = 0; t < sizeof temperatures / sizeof temperatures[0]; ++t) {
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; ++r) {
            struct kvad_sampler_options options = neutral();
            options.temperature = temperatures[t];
            double p[4];
            probabilities_of(&options, rows[r], 4, p);
            ASSERT_SURVIVORS(p, 4, 1);
            options.top_p = 0.9;
            options.top_k = 3;
            probabilities_of(&options, rows[r], 4, p);
            ASSERT_SURVIVORS(p, 4, 1);
        }
    }
}

static void test_huge_temperature_is_uniform(void **state) {
    (void)state;
    const float logits[] = {1, 300, -20, 5};
    struct kvad_sampler_options options = neutral();
    options.temperature = 1e30;
    double p[4];
    probabilities_of(&options, logits, 4, p);
    for (int i = 0; i < 4; ++i)
        assert_true(fabs(p[i] - 0.25) < 1e-12);
}

/* ---------------------------------------------------------------- top-k */

/* bugs.md SAMP-7 */
static void test_top_k_by_rank_keeps_exactly_k_lowest_ids_first(void **state) {
    (void)state;
    const float logits[] = {1, 2, 2, 2, 3};
    struct kvad_sampler_options options = neutral();
    double p[5];
    options.top_k = 3;
    probabilities_of(&options, logits, 5, p);
    ASSERT_SURVIVORS(p, 5, 4, 1, 2);
    options.top_k_rule = KVAD_TOP_K_VALUE; /* nanoGPT's and Hugging Face's */
    probabilities_of(&options, logits, 5, p);
    ASSERT_SURVIVORS(p, 5, 4, 1, 2, 3);
    options.top_k = 1000;
    probabilities_of(&options, logits, 5, p);
    ASSERT_SURVIVORS(p, 5, 0, 1, 2, 3, 4);
}

/* The k best by definition: a token stays if fewer than k are better, or equal with a lower id. */
static bool is_among_best(const float *logits, size_t n, size_t id, size_t k) {
    size_t n_before = 0;
    for (size_t i = 0; i < n; ++i)
        n_before += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
    return n_before < k;
}

/* The selection before the sort, the sort of everything, and the definition agree, on rows full of
 * ties and of every range. bugs.md SAMP-8 */
static void test_top_k_is_the_same_on_every_path(void **state) {
    (void)state;
    enum { N = 1500 };
    static float logits[N];
    static double selected[N], sorted[N];
    struct test_random random = {7};
    static const double scales[] = {3, 0.001, 1e30, 1000};
    static const uint32_t ks[] = {1, 2, 17, 200, 1499};
    for (size_t s = 0; s < 4; ++s) {
        for (size_t i = 0; i < N; ++i)
            logits[i] = (float)(floor(random_unit(&random) * 100) / 100 * scales[s]);
        for (size_t k = 0; k < 5; ++k) {
            struct kvad_sampler_options options = neutral();
            options.temperature = 1e30; /* nobody's weight is rounded to 0 */
            options.top_k = ks[k];
            probabilities_of(&options, logits, N, selected);
            /* min_p ranks everything first, and removes nothing at this temperature */
            options.min_p = 1e-9;
            static const unsigned char order[] = {KVAD_STAGE_TEMPERATURE, KVAD_STAGE_MIN_P,
                                                  KVAD_STAGE_TOP_K};
            memcpy(options.order, order, sizeof order);
            probabilities_of(&options, logits, N, sorted);
            for (size_t i = 0; i < N; ++i) {
                assert_true(selected[i] == sorted[i]);
                assert_int_equal(selected[i] > 0, is_among_best(logits, N, i, ks[k]));
            }
        }
    }
}

/* ---------------------------------------------------------------- top-p */

/* bugs.md SAMP-1 */
static void test_top_p_zero_is_greedy(void **state) {
    (void)state;
    const float logits[] = {1, 2, 2, -1};
    struct kvad_sampler_options options = neutral();
    options.top_p = 0;
    double p[4];
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 1);
}

/* Equal logits have weights that are exact in binary, so sums can equal top_p. bugs.md SAMP-3 */
static void test_sum_equal_to_top_p_ends_it(void **state) {
    (void)state;
    const float equal[8] = {0};
    struct kvad_sampler_options options = neutral();
    double p[8];
    options.top_p = 0.5;
    probabilities_of(&options, equal, 8, p);
    ASSERT_SURVIVORS(p, 8, 0, 1, 2, 3);
    options.top_p = nextafter(0.5, 1);
    probabilities_of(&options, equal, 8, p);
    ASSERT_SURVIVORS(p, 8, 0, 1, 2, 3, 4);
}

/* bugs.md SAMP-4 */
static void test_top_p_one_changes_nothing(void **state) {
    (void)state;
    const float logits[] = {0.5f, 0.5f, 0.5f};
    struct kvad_sampler_options options = neutral();
    options.top_p = 1;
    double p[3];
    probabilities_of(&options, logits, 3, p);
    for (int i = 0; i < 3; ++i)
        assert_true(fabs(p[i] - 1.0 / 3) < 1e-15);
    struct kvad_sampler *sampler = make_sampler(&options, 3);
    int seen[3] = {0};
    for (uint64_t i = 0; i < 1000; ++i)
        ++seen[draw_at(sampler, logits, i)];
    for (int i = 0; i < 3; ++i)
        assert_in_range(seen[i], 270, 400);
    kvad_sampler_destroy(&sampler);
}

/* bugs.md SAMP-5 */
static void test_token_that_crosses_top_p_stays(void **state) {
    (void)state;
    const float logits[] = {logf(0.09f), logf(0.5f), logf(0.41f)};
    struct kvad_sampler_options options = neutral();
    options.top_p = 0.9;
    double p[3];
    probabilities_of(&options, logits, 3, p);
    ASSERT_SURVIVORS(p, 3, 1, 2);
}

/* bugs.md SAMP-6 */
static void test_top_k_one_with_any_top_p_is_greedy(void **state) {
    (void)state;
    const float logits[] = {1, 2, 1.9f, -1};
    for (int i = 0; i <= 10; ++i) {
        struct kvad_sampler_options options = neutral();
        options.top_k = 1;
        options.top_p = i / 10.0;
        double p[4];
        probabilities_of(&options, logits, 4, p);
        ASSERT_SURVIVORS(p, 4, 1);
    }
}

static void test_filters_renormalise_what_is_left(void **state) {
    (void)state;
    /* Of {.5 .3 .1 .1}, top-k 2 leaves .625 and .375: top-p .6 then keeps one; before it, two. */
    const float logits[] = {logf(0.5f), logf(0.3f), logf(0.1f), logf(0.1f)};
    struct kvad_sampler_options options = neutral();
    options.top_k = 2;
    options.top_p = 0.6;
    double p[4];
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 0);
    static const unsigned char order[] = {KVAD_STAGE_TOP_P, KVAD_STAGE_TOP_K};
    memcpy(options.order, order, sizeof order);
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 0, 1);
}

/* ---------------------------------------------------------------- min-p, typical */

static void test_min_p_compares_with_the_best(void **state) {
    (void)state;
    const float logits[] = {logf(0.1f), logf(0.6f), logf(0.29f), logf(0.01f)};
    struct kvad_sampler_options options = neutral();
    double p[4];
    options.min_p = 0.15;
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 1, 2, 0);
    options.min_p = 0.2;
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 1, 2);
    options.min_p = 1;
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 1);
}

/* Probabilities 1/2, 1/4, 1/8, 1/8, exact in binary: the entropy is 1.75 bits, so the second token
 * is the most typical and the first comes next. */
static void test_sum_equal_to_typical_p_ends_it(void **state) {
    (void)state;
    const float logits[] = {0, -1, -2, -2};
    struct kvad_sampler_options options = neutral();
    options.temperature = 1.4426950408889634; /* 1 / ln 2: a logit less halves it */
    double p[4];
    probabilities_of(&options, logits, 4, p);
    assert_true(p[0] == 0.5 && p[1] == 0.25 && p[2] == 0.125 && p[3] == 0.125);
    options.typical_p = 0.25;
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 1);
    options.typical_p = nextafter(0.25, 1);
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 0, 1);
    options.typical_p = 0.75;
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 0, 1);
    options.typical_p = nextafter(0.75, 1);
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 0, 1, 2, 3);
}

static void test_typical_may_drop_the_best_but_never_all(void **state) {
    (void)state;
    /* One token of .4 among 60 of .01: entropy about 3.13, surprise .92 and 4.6. */
    float logits[61];
    for (int i = 1; i < 61; ++i)
        logits[i] = logf(0.01f);
    logits[0] = logf(0.4f);
    struct kvad_sampler_options options = neutral();
    options.typical_p = 0.3;
    double p[61];
    probabilities_of(&options, logits, 61, p);
    assert_true(p[0] == 0);
    for (int i = 1; i < 61; ++i)
        assert_true(fabs(p[i] - 1.0 / 60) < 1e-9); /* ties stay together */
    options.typical_p = 1e-12;
    const float two[] = {0, 1};
    probabilities_of(&options, two, 2, p);
    assert_true(p[0] + p[1] == 1);
}

/* ---------------------------------------------------------------- exclusions */

/* bugs.md LOAD-16, LOAD-17 */
static void test_ids_from_n_tokens_on_are_never_sampled(void **state) {
    (void)state;
    const float logits[] = {0, 1, 2, 50, NAN};
    for (int greedy = 0; greedy < 2; ++greedy) {
        struct kvad_sampler_options options = neutral();
        const struct kvad_logit_bias bias = {3, 100};
        options.n_tokens = 3;
        options.temperature = greedy ? 0 : 1;
        options.logit_bias = &bias;
        options.n_logit_bias = 1;
        double p[5];
        probabilities_of(&options, logits, 5, p);
        assert_true(p[3] == 0 && p[4] == 0 && p[2] > 0);
    }
}

static void test_minus_infinity_is_exactly_zero(void **state) {
    (void)state;
    const float logits[] = {-INFINITY, 1, -INFINITY, 0};
    const struct kvad_logit_bias bias = {3, -INFINITY};
    struct kvad_sampler_options options = neutral();
    double p[4];
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 1, 3);
    options.logit_bias = &bias;
    options.n_logit_bias = 1;
    probabilities_of(&options, logits, 4, p);
    ASSERT_SURVIVORS(p, 4, 1);
}

static void test_banned_ids_are_excluded_at_that_step_only(void **state) {
    (void)state;
    const float logits[] = {5, 1, 4, 0};
    const int32_t banned[] = {0, 2};
    for (int kind = 0; kind < 3; ++kind) { /* plain greedy, greedy with a bias, sampled */
        const struct kvad_logit_bias bias = {3, -1};
        struct kvad_sampler_options options = neutral();
        options.temperature = kind < 2 ? 0 : 0.01;
        options.logit_bias = &bias;
        options.n_logit_bias = kind > 0 ? 1 : 0;
        struct kvad_sampler *sampler = make_sampler(&options, 4);
        struct kvad_error err;
        int32_t token;
        assert_ok(kvad_sampler_draw(sampler, logits, NULL, 0, banned, 2, 0, &token, &err), &err);
        assert_int_equal(token, 1);
        assert_int_equal(draw_at(sampler, logits, 1), 0);
        kvad_sampler_destroy(&sampler);
    }
}

static void test_nothing_left_is_an_error(void **state) {
    (void)state;
    const float logits[] = {1, 2}, none[] = {-INFINITY, -INFINITY};
    const int32_t banned[] = {1, 0};
    for (int greedy = 0; greedy < 2; ++greedy) {
        struct kvad_sampler_options options = neutral();
        options.temperature = greedy ? 0 : 1;
        struct kvad_sampler *sampler = make_sampler(&options, 2);
        struct kvad_error err;
        int32_t token = 77;
        assert_fails(kvad_sampler_draw(sampler, logits, NULL, 0, banned, 2, 0, &token, &err),
                     KVAD_ERR_ARGUMENT, &err, "no token is left");
        assert_fails(kvad_sampler_draw(sampler, none, NULL, 0, NULL, 0, 0, &token, &err),
                     KVAD_ERR_ARGUMENT, &err, "no token is left");
        assert_int_equal(token, 77);
        assert_int_equal(draw_at(sampler, (const float[]){0, 90}, 0), 1); /* usable as before */
        kvad_sampler_destroy(&sampler);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_temperature_zero_is_the_lowest_id_of_the_best),
        cmocka_unit_test(test_the_best_of_a_long_vocabulary_is_the_lowest_id_of_equal_ones),
        cmocka_unit_test(test_tiny_temperatures_are_greedy_and_never_nan),
        cmocka_unit_test(test_huge_temperature_is_uniform),
        cmocka_unit_test(test_top_k_by_rank_keeps_exactly_k_lowest_ids_first),
        cmocka_unit_test(test_top_k_is_the_same_on_every_path),
        cmocka_unit_test(test_top_p_zero_is_greedy),
        cmocka_unit_test(test_sum_equal_to_top_p_ends_it),
        cmocka_unit_test(test_top_p_one_changes_nothing),
        cmocka_unit_test(test_token_that_crosses_top_p_stays),
        cmocka_unit_test(test_top_k_one_with_any_top_p_is_greedy),
        cmocka_unit_test(test_filters_renormalise_what_is_left),
        cmocka_unit_test(test_min_p_compares_with_the_best),
        cmocka_unit_test(test_sum_equal_to_typical_p_ends_it),
        cmocka_unit_test(test_typical_may_drop_the_best_but_never_all),
        cmocka_unit_test(test_ids_from_n_tokens_on_are_never_sampled),
        cmocka_unit_test(test_minus_infinity_is_exactly_zero),
        cmocka_unit_test(test_banned_ids_are_excluded_at_that_step_only),
        cmocka_unit_test(test_nothing_left_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
