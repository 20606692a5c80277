#include "lab/claims.h"

#include <math.h>

#include "test.h"

/* ---- curves */

static void test_between_two_contexts_a_curve_is_straight(void **state) {
    (void)state;
    static const uint32_t contexts[] = {2, 4, 10};
    static const double ms[] = {1, 3, 9};
    struct kvad_curve curve = {contexts, ms, 3};
    assert_true(kvad_curve_at(&curve, 2) == 1 && kvad_curve_at(&curve, 3) == 2);
    assert_true(kvad_curve_at(&curve, 4) == 3 && kvad_curve_at(&curve, 7) == 6);
    assert_true(kvad_curve_at(&curve, 0) == 1 && kvad_curve_at(&curve, 11) == 9);
    /* What was measured comes back to the bit, though 0.2 + (0.9 - 0.2) is not 0.9. */
    static const double measured[] = {0.2, 0.9, 0.3};
    curve.ms = measured;
    for (size_t i = 0; i < 3; i++)
        assert_true(kvad_curve_at(&curve, curve.contexts[i]) == measured[i]);
}

/* 1 + 2 + 3 + 4 + ... + 9, and two more at the end's 9 milliseconds. */
static void test_a_text_is_the_sum_of_its_steps(void **state) {
    (void)state;
    static const uint32_t contexts[] = {2, 4, 10};
    static const double ms[] = {1, 3, 9};
    struct kvad_curve curve = {contexts, ms, 3};
    assert_true(fabs(kvad_curve_seconds(&curve, 2, 9) - 0.045) < 1e-12);
    assert_true(fabs(kvad_curve_seconds(&curve, 2, 11) - 0.063) < 1e-12);
    assert_true(kvad_curve_seconds(&curve, 5, 0) == 0);
}

/* ---- verdicts: a made-up machine that each test changes in one way */

enum { POINTS = 5 };
static const uint32_t contexts[POINTS] = {1, 64, 256, 512, 1000};

struct machine {
    double naive[POINTS], cached[POINTS], naive_attention[POINTS], cached_attention[POINTS];
    struct kvad_claim_facts facts;
    struct kvad_claim claims[KVAD_CLAIMS];
};

/* A naive step takes 1 ms a row, a cached one 20 ms and a little for each token. */
static void set_up(struct machine *m) {
    *m = (struct machine){0};
    for (size_t i = 0; i < POINTS; i++) {
        m->naive[i] = contexts[i];
        m->cached[i] = 20 + 0.004 * contexts[i];
        m->naive_attention[i] = 10;
        m->cached_attention[i] = 12;
    }
    m->facts = (struct kvad_claim_facts){.naive = {contexts, m->naive, POINTS},
                                         .cached = {contexts, m->cached, POINTS},
                                         .naive_attention_percent = m->naive_attention,
                                         .cached_attention_percent = m->cached_attention,
                                         .flop_ratio = 700,
                                         .byte_ratio = 1.7,
                                         .n_prompt = 8,
                                         .n_tokens = 992,
                                         .naive_seconds = 500,
                                         .cached_seconds = 20,
                                         .gap_ms = 22,
                                         .overhead_ms = 0.5,
                                         .n_ctx = 1024,
                                         .linear_flops_per_row = 169869312,
                                         .attention_flops_per_pair = 36864};
}

static const struct kvad_claim *judge(struct machine *m, const char *id) {
    kvad_claims_judge(&m->facts, m->claims);
    for (size_t i = 0; i < KVAD_CLAIMS; i++)
        if (strcmp(m->claims[i].id, id) == 0) return &m->claims[i];
    fail_msg("no claim \"%s\"", id);
    return NULL;
}

static void assert_verdict(struct machine *m, const char *id, enum kvad_claim_verdict verdict) {
    const struct kvad_claim *c = judge(m, id);
    if (c->verdict != verdict)
        print_error("%s: %s (%g) %s\n", id, kvad_claim_verdict_name(c->verdict), c->figure,
                    c->when);
    assert_int_equal(c->verdict, verdict);
    assert_true((*c->when != 0) == (verdict == KVAD_CLAIM_ONLY_WHEN));
    assert_true(*c->ours && isfinite(c->figure));
}

static void scale(double *ms, double factor) {
    for (size_t i = 0; i < POINTS; i++)
        ms[i] *= factor;
}

static void test_fewer_operations(void **state) {
    (void)state;
    struct machine m;
    set_up(&m); /* 1000 / 24 = 41.7 times at the end, 6 times at 20 / (1/6 - 0.004) = 123 */
    assert_verdict(&m, "flops", KVAD_CLAIM_ONLY_WHEN);
    assert_true(fabs(judge(&m, "flops")->figure - 1000.0 / 24) < 1e-9);
    assert_non_null(strstr(judge(&m, "flops")->when, "123 tokens"));
    scale(m.cached, 7); /* 5.95 times */
    assert_verdict(&m, "flops", KVAD_CLAIM_CONFIRMED);
    scale(m.cached, 2); /* 2.98 times: never 6 */
    assert_verdict(&m, "flops", KVAD_CLAIM_REFUTED);
    set_up(&m);
    m.facts.flop_ratio = 80; /* 41.7 is more than half of it: time follows operations */
    assert_verdict(&m, "flops", KVAD_CLAIM_REFUTED);
}

static void test_the_whole_text(void **state) {
    (void)state;
    struct machine m;
    set_up(&m);
    assert_verdict(&m, "total", KVAD_CLAIM_ONLY_WHEN);
    assert_true(judge(&m, "total")->figure == 25);
    m.facts.naive_seconds = 20 * 3.4; /* within a fifth of 2.91 */
    assert_verdict(&m, "total", KVAD_CLAIM_CONFIRMED);
    m.facts.naive_seconds = 20 * 2.4;
    assert_verdict(&m, "total", KVAD_CLAIM_CONFIRMED);
    m.facts.naive_seconds = 20 * 2;
    assert_verdict(&m, "total", KVAD_CLAIM_REFUTED);
    set_up(&m);
    scale(m.cached, 0.001); /* more than 2.9 times from the first token on */
    assert_verdict(&m, "total", KVAD_CLAIM_REFUTED);
}

/* Contexts 7, 8, ...: n steps without a cache take n (n + 13) / 2, with one 20 n and 0.004 times
 * that; 2.9145 times as much at n = 105. */
static void test_the_text_that_is_as_much_faster_is_found(void **state) {
    (void)state;
    struct machine m;
    set_up(&m);
    const char *when = judge(&m, "total")->when;
    assert_non_null(strstr(when, "about 105 tokens"));
}

static void test_a_flat_curve(void **state) {
    (void)state;
    struct machine m;
    set_up(&m); /* 24 / 20.004: a tenth is reached behind 500 */
    assert_verdict(&m, "flat", KVAD_CLAIM_ONLY_WHEN);
    assert_non_null(strstr(judge(&m, "flat")->when, "256 tokens"));
    m.cached[POINTS - 1] = 21;
    m.cached[POINTS - 2] = 22; /* just within a tenth */
    assert_verdict(&m, "flat", KVAD_CLAIM_CONFIRMED);
    m.cached[1] = 40;
    assert_verdict(&m, "flat", KVAD_CLAIM_REFUTED);
    set_up(&m);
    m.cached[2] = 40; /* flat up to 64, which is more than a sixteenth of 1000 */
    assert_verdict(&m, "flat", KVAD_CLAIM_ONLY_WHEN);
    static const uint32_t others[POINTS] = {1, 32, 256, 512, 1000}; /* and 32 is less */
    m.facts.cached.contexts = others;
    assert_verdict(&m, "flat", KVAD_CLAIM_REFUTED);
}

static void test_overhead(void **state) {
    (void)state;
    struct machine m;
    set_up(&m);
    assert_verdict(&m, "overhead", KVAD_CLAIM_REFUTED);
    assert_true(fabs(judge(&m, "overhead")->figure - 100 * 0.5 / 22) < 1e-9);
    m.facts.overhead_ms = 11;
    assert_verdict(&m, "overhead", KVAD_CLAIM_CONFIRMED);
    m.facts.overhead_ms = 10.9; /* just below a half, just above a tenth, just below it */
    assert_verdict(&m, "overhead", KVAD_CLAIM_ONLY_WHEN);
    m.facts.overhead_ms = 2.3;
    assert_verdict(&m, "overhead", KVAD_CLAIM_ONLY_WHEN);
    m.facts.overhead_ms = 2.1;
    assert_verdict(&m, "overhead", KVAD_CLAIM_REFUTED);
    m.facts.gap_ms = 0; /* nothing is missing, so nothing explains it */
    assert_verdict(&m, "overhead", KVAD_CLAIM_REFUTED);
}

static void test_attention(void **state) {
    (void)state;
    struct machine m;
    set_up(&m);
    assert_verdict(&m, "attention", KVAD_CLAIM_REFUTED);
    assert_true(judge(&m, "attention")->figure == 12);
    /* 8 * 12 * 12 d^2 * 2 / (4 * 12 d) = 48 d */
    assert_non_null(strstr(judge(&m, "attention")->ours, "36864 tokens"));
    m.naive_attention[3] = 81;
    assert_verdict(&m, "attention", KVAD_CLAIM_ONLY_WHEN);
    assert_non_null(strstr(judge(&m, "attention")->when, "without a cache, at context 512"));
    m.naive_attention[4] = m.cached_attention[4] = 90;
    assert_verdict(&m, "attention", KVAD_CLAIM_CONFIRMED);
}

static void test_cubic_growth(void **state) {
    (void)state;
    struct machine m;
    set_up(&m);
    assert_verdict(&m, "cubic", KVAD_CLAIM_REFUTED);
    assert_true(fabs(judge(&m, "cubic")->figure - 2) < 0.01);
    m.facts.n_ctx = 100000; /* 3 * 4.285 * 4608 = 59236 tokens */
    assert_verdict(&m, "cubic", KVAD_CLAIM_ONLY_WHEN);
    assert_non_null(strstr(judge(&m, "cubic")->when, "59236"));
    m.facts.n_ctx = 1024;
    for (size_t i = 0; i < POINTS; i++)
        m.naive[i] = pow(contexts[i], 1.65); /* N^2.65 in all */
    assert_true(judge(&m, "cubic")->figure > 2.6);
    assert_verdict(&m, "cubic", KVAD_CLAIM_REFUTED);
    for (size_t i = 0; i < POINTS; i++)
        m.naive[i] = (double)contexts[i] * contexts[i];
    assert_verdict(&m, "cubic", KVAD_CLAIM_CONFIRMED);
}

static void test_a_hundred_times(void **state) {
    (void)state;
    struct machine m;
    set_up(&m);
    assert_verdict(&m, "hundred", KVAD_CLAIM_REFUTED);
    m.facts.naive_seconds = 2000;
    assert_verdict(&m, "hundred", KVAD_CLAIM_CONFIRMED);
    set_up(&m);
    scale(m.naive, 4); /* 4000 / 24 at the end, 25 times in all */
    assert_verdict(&m, "hundred", KVAD_CLAIM_ONLY_WHEN);
}

/* What cubic_from() says, counted step by step: N tokens cost a n + b n^2 / 2 each. */
static void test_the_exponent_is_reached_where_the_formula_says(void **state) {
    (void)state;
    double a = 169869312, b = 36864, whole = 0, half = 0;
    for (int n = 1; n <= 59236; n++) {
        whole += a * n + b * n * n / 2;
        if (n == 29618) half = whole;
    }
    assert_true(fabs(log2(whole / half) - 2.75) < 0.001);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_between_two_contexts_a_curve_is_straight),
        cmocka_unit_test(test_a_text_is_the_sum_of_its_steps),
        cmocka_unit_test(test_fewer_operations),
        cmocka_unit_test(test_the_whole_text),
        cmocka_unit_test(test_the_text_that_is_as_much_faster_is_found),
        cmocka_unit_test(test_a_flat_curve),
        cmocka_unit_test(test_overhead),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_cubic_growth),
        cmocka_unit_test(test_a_hundred_times),
        cmocka_unit_test(test_the_exponent_is_reached_where_the_formula_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
