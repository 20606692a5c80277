#include "lab/experiment.h"

#include <math.h>

#include "lab/experiment_internal.h"
#include "lab_host.h"

static struct kvad_experiment_options options_for(struct host *host) {
    static const uint32_t contexts[] = {20, 3, 8};
    return (struct kvad_experiment_options){.open_model = open_model,
                                            .user = host,
                                            .contexts = {contexts, 3, false},
                                            .n_rounds = 1,
                                            .n_threads = 2,
                                            .quick = true,
                                            .sample_seconds = 1e-6,
                                            .budget_seconds = 3600,
                                            .report = report,
                                            .engine_in_use = engine_in_use};
}

static void run(const struct kvad_experiment_options *options,
                struct kvad_experiment_result *result) {
    struct kvad_error err;
    assert_ok(kvad_experiment_run(options, result, &err), &err);
}

/* One run for all tests that only look at it. */
struct seen {
    struct host host;
    struct kvad_experiment_result result;
};

static int set_up(void **state) {
    static struct seen seen;
    struct kvad_experiment_options options = options_for(&seen.host);
    run(&options, &seen.result);
    *state = &seen;
    return 0;
}

static int tear_down(void **state) {
    struct seen *seen = *state;
    kvad_experiment_result_deinit(&seen->result);
    return 0;
}

static void test_every_context_has_every_policy_and_ratios_by_formula(void **state) {
    const struct seen *seen = *state;
    assert_false(seen->result.is_void);
    assert_int_equal(seen->result.n_points, 3);
    static const uint32_t sorted[] = {3, 8, 20};
    for (size_t i = 0; i < 3; i++) {
        const struct kvad_experiment_point *p = &seen->result.points[i];
        assert_int_equal(p->context, sorted[i]);
        assert_int_equal(p->context, seen->result.contexts[i]);
        for (size_t policy = 0; policy < KVAD_CACHE_POLICY_COUNT; policy++) {
            assert_int_equal(p->cases[policy]->policy, policy);
            assert_int_equal(p->cases[policy]->context, p->context);
            assert_int_equal(p->cases[policy]->token, p->cases[0]->token);
            assert_true(p->cases[policy]->ms.median > 0);
        }
        const struct kvad_bench_case *naive = p->cases[KVAD_CACHE_NONE];
        const struct kvad_bench_case *cached = p->cases[KVAD_CACHE_PAGED];
        assert_true(p->time_ratio == naive->ms.median / cached->ms.median);
        assert_true(p->byte_ratio == naive->bytes / cached->bytes);
        /* 2 layers of 12 * 64^2, a head of 301 * 64, attention 4 * 2 * 64 for each pair */
        double layers = 2.0 * 2 * 12 * 64 * 64, head = 2.0 * 301 * 64, c = p->context;
        assert_true(cached->flops == layers + head + 512 * (c + 1));
        assert_true(naive->flops == (c + 1) * layers + head + 512 * (c + 1) * (c + 2) / 2);
        assert_true(p->flop_ratio == naive->flops / cached->flops);
        assert_true(fabs(p->thrown_away_percent - 100 * (1 - 1 / p->flop_ratio)) < 1e-9);
    }
}

static void test_texts_are_measured_where_the_budget_allows(void **state) {
    const struct seen *seen = *state;
    assert_int_equal(seen->result.n_prompt, 6);
    assert_int_equal(seen->result.n_tokens, 15);
    for (size_t policy = 0; policy < KVAD_CACHE_POLICY_COUNT; policy++) {
        const struct kvad_experiment_total *t = &seen->result.totals[policy];
        assert_int_equal(t->policy, policy);
        assert_true(t->is_measured && t->n_measured == 15);
        assert_true(t->seconds == t->measured_seconds && t->seconds > 0);
        assert_true(t->interpolated_seconds == t->measured_interpolated_seconds);
    }
    /* Rows 6 to 20 of the layers against 6 + 14; and the heads and pairs of both. */
    double layers = 2.0 * 2 * 12 * 64 * 64, heads = 15 * 2.0 * 301 * 64, pairs = 0;
    for (int n = 6; n <= 20; n++)
        pairs += n * (n + 1) / 2.0;
    double naive = 195 * layers + heads + 512 * pairs;
    double cached = 20 * layers + heads + 512 * (20 * 21 / 2.0);
    assert_true(fabs(seen->result.total_flop_ratio - naive / cached) < 1e-9);
}

/* A budget that is gone before the texts: 16 tokens of 57 are measured, the rest is added. */
static void test_texts_beyond_the_budget_are_extrapolated_and_say_so(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_experiment_options options = options_for(&host);
    static const uint32_t contexts[] = {7, 63};
    options.contexts = (struct kvad_bench_list){contexts, 2, false};
    options.budget_seconds = 1e-9;
    struct kvad_experiment_result result;
    run(&options, &result);
    for (size_t policy = 0; policy < KVAD_CACHE_POLICY_COUNT; policy++) {
        const struct kvad_experiment_total *t = &result.totals[policy];
        assert_false(t->is_measured);
        assert_int_equal(t->n_measured, 16);
        double rest = t->interpolated_seconds - t->measured_interpolated_seconds;
        assert_true(rest > 0 && fabs(t->seconds - t->measured_seconds - rest) < 1e-12);
    }
    kvad_experiment_result_deinit(&result);
}

static void test_parts_add_up_to_no_more_than_the_step(void **state) {
    const struct seen *seen = *state;
    const struct kvad_experiment_gap *gap = &seen->result.gap;
    double sum = 0, named = 0;
    for (size_t i = 0; i < KVAD_SHARE_COUNT; i++) {
        assert_true(gap->share_ms[i] >= 0);
        sum += gap->share_ms[i];
        if (i < KVAD_SHARE_SYNCHRONISATION) named += gap->share_ms[i];
    }
    assert_int_equal(gap->context, 20);
    assert_true(gap->wall_ms > 0 && sum <= gap->wall_ms * (1 + 1e-9));
    assert_true(fabs(100 * named / gap->wall_ms - gap->named_percent) < 1e-6);
}

/* 100 operations in 10 ms without a cache; 5 with one, of which 1 in attention. */
static void test_the_gap_is_what_is_beyond_the_operations(void **state) {
    (void)state;
    struct kvad_bench_case naive = {.flops = 100, .ms = {.median = 10}};
    struct kvad_bench_case cached = {.flops = 5,
                                     .attention_flops = 1,
                                     .bytes = 30e6,
                                     .kv_bytes = 10e6,
                                     .read_rate = 10e9,
                                     .ms = {.median = 8},
                                     .parts_wall_ms = 4, /* the sample with clocks was faster */
                                     .named_percent = 87.5};
    cached.parts[KVAD_PART_QKV].ms = 1;
    cached.parts[KVAD_PART_HEAD].ms = 1;
    cached.parts[KVAD_PART_ATTENTION].ms = 0.5;
    cached.parts[KVAD_PART_STORE_KV].ms = 0.25;
    cached.parts[KVAD_PART_NORM].ms = 0.5;
    cached.parts[KVAD_PART_SAMPLING].ms = 0.25;
    cached.parts[KVAD_PART_WAIT].ms = 0.375;
    cached.parts[KVAD_PART_OTHER].ms = 0.125;
    struct kvad_experiment_point point = {
        .context = 9, .cases = {[KVAD_CACHE_NONE] = &naive, [KVAD_CACHE_PAGED] = &cached}};
    struct kvad_experiment_gap gap;
    experiment_explain(&point, &gap);
    assert_true(gap.wall_ms == 8 && gap.ideal_ms == 0.5 && gap.named_percent == 87.5);
    assert_true(fabs(gap.share_ms[KVAD_SHARE_WEIGHTS] - (4 - 0.4)) < 1e-12);
    assert_true(fabs(gap.share_ms[KVAD_SHARE_CACHE] - (1.5 - 0.1)) < 1e-12);
    assert_true(fabs(gap.share_ms[KVAD_SHARE_ARITHMETIC] - (1 + 0.5)) < 1e-12);
    assert_true(gap.share_ms[KVAD_SHARE_SAMPLING] == 0.5);
    assert_true(gap.share_ms[KVAD_SHARE_SYNCHRONISATION] == 0.75);
    assert_true(gap.share_ms[KVAD_SHARE_OTHER] == 0.25);
    assert_true(fabs(gap.weights_floor_ms - 2) < 1e-12 && fabs(gap.cache_floor_ms - 1) < 1e-12);
}

/* A naive step that is slower than the cached one leaves no negative part. */
static void test_no_part_is_negative(void **state) {
    (void)state;
    struct kvad_bench_case naive = {.flops = 1, .ms = {.median = 10}};
    struct kvad_bench_case cached = {
        .flops = 5, .attention_flops = 1, .ms = {.median = 2}, .parts_wall_ms = 2, .read_rate = 1};
    cached.parts[KVAD_PART_UP].ms = 1;
    cached.parts[KVAD_PART_ATTENTION].ms = 1;
    struct kvad_experiment_point point = {
        .cases = {[KVAD_CACHE_NONE] = &naive, [KVAD_CACHE_PAGED] = &cached}};
    struct kvad_experiment_gap gap;
    experiment_explain(&point, &gap);
    assert_true(gap.share_ms[KVAD_SHARE_WEIGHTS] == 0 && gap.share_ms[KVAD_SHARE_CACHE] == 0);
    assert_true(gap.share_ms[KVAD_SHARE_ARITHMETIC] == 2);
}

static void test_controls_and_claims_all_have_a_verdict_and_a_reason(void **state) {
    const struct seen *seen = *state;
    for (size_t i = 0; i < KVAD_CONTROLS; i++) {
        const struct kvad_control *c = &seen->result.controls[i];
        assert_true(c->id && c->what && c->unit && *c->why);
        if (c->verdict == KVAD_CONTROL_NOT_SHOWN) continue;
        assert_true(isfinite(c->predicted) && isfinite(c->measured));
        double most = c->predicted * (1 + c->tolerance_percent / 100);
        if (c->verdict == KVAD_CONTROL_HOLDS) assert_true(c->measured <= most * (1 + 1e-9));
    }
    for (size_t i = 0; i < KVAD_CLAIMS; i++)
        assert_true(seen->result.claims[i].id && *seen->result.claims[i].ours);
}

static double figure(const struct kvad_experiment_result *result, const char *id) {
    for (size_t i = 0; i < KVAD_CLAIMS; i++)
        if (strcmp(result->claims[i].id, id) == 0) return result->claims[i].figure;
    fail_msg("no claim \"%s\"", id);
    return NAN;
}

/* Attention with storing rows, in per cent of the sample that had clocks. */
static double attention_percent(const struct kvad_bench_case *c) {
    double ms = c->parts[KVAD_PART_ATTENTION].ms + c->parts[KVAD_PART_STORE_KV].ms;
    return 100 * ms / c->parts_wall_ms;
}

static void test_claims_are_judged_by_the_numbers_of_the_run(void **state) {
    const struct seen *seen = *state;
    const struct kvad_experiment_result *result = &seen->result;
    const struct kvad_experiment_gap *gap = &result->gap;
    double missing = gap->wall_ms - gap->ideal_ms, attention = 0;
    double overhead = gap->share_ms[KVAD_SHARE_SYNCHRONISATION] + gap->share_ms[KVAD_SHARE_OTHER];
    double of_missing = missing > 0 ? 100 * overhead / missing : 0;
    assert_true(fabs(figure(result, "overhead") - of_missing) < 1e-9);
    for (size_t i = 0; i < result->n_points; i++) {
        attention = fmax(attention, attention_percent(result->points[i].cases[KVAD_CACHE_NONE]));
        attention = fmax(attention, attention_percent(result->points[i].cases[KVAD_CACHE_PAGED]));
    }
    assert_true(fabs(figure(result, "attention") - attention) < 1e-9);
    double total =
        result->totals[KVAD_CACHE_NONE].seconds / result->totals[KVAD_CACHE_PAGED].seconds;
    assert_true(figure(result, "total") == total && figure(result, "hundred") == total);
    assert_true(figure(result, "flops") == result->points[2].time_ratio);
}

static void test_one_thread_has_no_control_of_one_thread(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_experiment_options options = options_for(&host);
    options.n_threads = 1;
    struct kvad_experiment_result result;
    run(&options, &result);
    size_t n = 0;
    for (size_t i = 0; i < KVAD_CONTROLS; i++) {
        const struct kvad_control *c = &result.controls[i];
        if (strncmp(c->id, "one_", 4) != 0) continue;
        assert_int_equal(c->verdict, KVAD_CONTROL_NOT_SHOWN);
        assert_true(isnan(c->measured));
        n++;
    }
    assert_int_equal(n, 3);
    kvad_experiment_result_deinit(&result);
}

static void test_progress_goes_forward_and_no_engine_is_left_in_use(void **state) {
    const struct seen *seen = *state;
    assert_true(seen->host.n_reports > 20);
    assert_false(seen->host.went_back);
    assert_null(seen->host.engine);
}

/* A weight changes on the way: another policy, or a later stage, gives other bits. */
static void test_another_answer_makes_the_run_void(void **state) {
    (void)state;
    static const char *const places[] = {"context 8, cache static",
                                         "first look: f32 decode, context 63, cache paged",
                                         "token 8 of 15, cache paged"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct host host = {.spoil_at = places[i]};
        struct kvad_experiment_options options = options_for(&host);
        struct kvad_experiment_result result;
        run(&options, &result);
        assert_null(host.spoil_at);
        assert_true(result.is_void && *result.void_why);
        kvad_experiment_result_deinit(&result);
    }
}

static void test_a_run_can_be_stopped_in_every_stage(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_experiment_options options = options_for(&host);
    struct kvad_experiment_result result;
    run(&options, &result);
    kvad_experiment_result_deinit(&result);
    int n = host.n_reports;
    for (int i = 1; i <= n; i += 1 + n / 8) {
        struct kvad_error err;
        host = (struct host){.stop_at = i};
        assert_fails(kvad_experiment_run(&options, &result, &err), KVAD_ERR_CANCELLED, &err,
                     "interrupted");
        assert_null(host.engine);
        kvad_experiment_result_deinit(&result);
    }
}

static void test_contexts_that_cannot_be_are_refused(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_experiment_options options = options_for(&host);
    struct kvad_experiment_result result;
    struct kvad_error err;
    static const uint32_t long_one[] = {5, 64}, one[] = {5, 5};
    options.contexts = (struct kvad_bench_list){long_one, 2, false};
    assert_fails(kvad_experiment_run(&options, &result, &err), KVAD_ERR_CONTEXT_FULL, &err,
                 "context 64");
    kvad_experiment_result_deinit(&result);
    options.contexts = (struct kvad_bench_list){one, 2, false};
    assert_fails(kvad_experiment_run(&options, &result, &err), KVAD_ERR_ARGUMENT, &err,
                 "at least two");
    kvad_experiment_result_deinit(&result);
}

/* The usual contexts shrink to the model, whose longest is 63; a budget leaves some out. */
static void test_usual_contexts_fit_model_and_budget(void **state) {
    (void)state;
    struct host host = {0};
    struct kvad_experiment_options options = options_for(&host);
    options.contexts = (struct kvad_bench_list){0};
    struct kvad_experiment_result result;
    run(&options, &result);
    assert_int_equal(result.n_points, 3);
    assert_int_equal(result.contexts[2], 63);
    assert_int_equal(result.n_left_out, 0);
    kvad_experiment_result_deinit(&result);
    options.budget_seconds = 1e-9;
    run(&options, &result);
    assert_int_equal(result.n_points, 2);
    assert_int_equal(result.contexts[0], 1);
    assert_int_equal(result.contexts[1], 63);
    assert_int_equal(result.n_left_out, 1);
    kvad_experiment_result_deinit(&result);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_context_has_every_policy_and_ratios_by_formula),
        cmocka_unit_test(test_texts_are_measured_where_the_budget_allows),
        cmocka_unit_test(test_texts_beyond_the_budget_are_extrapolated_and_say_so),
        cmocka_unit_test(test_parts_add_up_to_no_more_than_the_step),
        cmocka_unit_test(test_the_gap_is_what_is_beyond_the_operations),
        cmocka_unit_test(test_no_part_is_negative),
        cmocka_unit_test(test_controls_and_claims_all_have_a_verdict_and_a_reason),
        cmocka_unit_test(test_claims_are_judged_by_the_numbers_of_the_run),
        cmocka_unit_test(test_one_thread_has_no_control_of_one_thread),
        cmocka_unit_test(test_progress_goes_forward_and_no_engine_is_left_in_use),
        cmocka_unit_test(test_another_answer_makes_the_run_void),
        cmocka_unit_test(test_a_run_can_be_stopped_in_every_stage),
        cmocka_unit_test(test_contexts_that_cannot_be_are_refused),
        cmocka_unit_test(test_usual_contexts_fit_model_and_budget),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
