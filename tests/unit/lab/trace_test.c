#include "lab/trace.h"

#include <math.h>

#include "lab/synthetic.h"
#include "model/model.h"
#include "test.h"

enum { N_CTX = 64 /* of "tiny" */ };

/* ---------------------------------------------------------------- traces */

static void test_a_made_up_trace_is_a_function_of_its_seed_and_within_its_bounds(void **state) {
    (void)state;
    enum { N = 3000 };
    struct kvad_trace a, b, other;
    struct kvad_error err;
    assert_ok(kvad_trace_make(&a, N, 7, 1024, &err), &err);
    assert_ok(kvad_trace_make(&b, N, 7, 1024, &err), &err);
    assert_ok(kvad_trace_make(&other, N, 8, 1024, &err), &err);
    assert_memory_equal(a.items, b.items, N * sizeof *a.items);
    assert_memory_not_equal(a.items, other.items, N * sizeof *a.items);
    size_t octaves[5] = {0};
    double sum = 0;
    for (size_t i = 0; i < N; i++) {
        const struct kvad_trace_item *item = &a.items[i];
        assert_in_range(item->n_prompt, 16, 511);
        assert_in_range(item->n_output, 16, 511);
        if (i > 0) assert_in_range(item->arrival - a.items[i - 1].arrival, 0, 8);
        for (size_t k = 0; k < 5; k++)
            octaves[k] += item->n_prompt >= 16u << k && item->n_prompt < 32u << k;
        sum += item->n_prompt + item->n_output;
    }
    for (size_t k = 0; k < 5; k++) /* 600 each, give or take five standard deviations */
        assert_in_range(octaves[k], 490, 710);
    assert_true(sum / N > 270 && sum / N < 320);
    kvad_trace_deinit(&a);
    kvad_trace_deinit(&b);
    kvad_trace_deinit(&other);
    assert_fails(kvad_trace_make(&a, 0, 1, 1024, &err), KVAD_ERR_ARGUMENT, &err, "at least 1");
    assert_fails(kvad_trace_make(&a, 1, 1, 63, &err), KVAD_ERR_ARGUMENT, &err, "63 tokens");
}

static enum kvad_status read_text(const char *text, struct kvad_trace *trace,
                                  struct kvad_error *err) {
    return kvad_trace_read(trace, text, strlen(text), "t.jsonl", N_CTX, err);
}

static void test_lines_of_json_are_a_trace(void **state) {
    (void)state;
    struct kvad_trace trace;
    struct kvad_error err;
    assert_ok(read_text("{\"prompt_tokens\": 3, \"output_tokens\": 61}\n\n \t\r\n"
                        "{\"arrival\": 5, \"output_tokens\": 1, \"prompt_tokens\": 9}",
                        &trace, &err),
              &err);
    assert_int_equal(trace.n, 2);
    assert_int_equal(trace.items[0].arrival, 0);
    assert_int_equal(trace.items[0].n_prompt, 3);
    assert_int_equal(trace.items[0].n_output, 61);
    assert_int_equal(trace.items[1].arrival, 5);
    kvad_trace_deinit(&trace);
    kvad_trace_deinit(&trace);
}

static void test_lines_that_are_no_requests_are_refused_by_number(void **state) {
    (void)state;
    static const struct {
        enum kvad_status status;
        const char *text, *part;
    } cases[] = {
        {KVAD_ERR_FORMAT, "", "no requests"},
        {KVAD_ERR_FORMAT, "\n{", "line 2"},
        {KVAD_ERR_FORMAT, "{\"prompt_tokens\": 3}", "output_tokens"},
        {KVAD_ERR_FORMAT, "{\"prompt_tokens\": 0, \"output_tokens\": 1}", "prompt_tokens"},
        {KVAD_ERR_FORMAT, "{\"prompt_tokens\": 1, \"output_tokens\": -1}", "output_tokens"},
        {KVAD_ERR_FORMAT, "{\"prompt_tokens\": 1.5, \"output_tokens\": 1}", "prompt_tokens"},
        {KVAD_ERR_CONTEXT_FULL, "{\"prompt_tokens\": 60, \"output_tokens\": 5}", "line 1"},
        {KVAD_ERR_FORMAT,
         "{\"prompt_tokens\": 1, \"output_tokens\": 1, \"arrival\": 4}\n"
         "{\"prompt_tokens\": 1, \"output_tokens\": 1, \"arrival\": 3}",
         "line 2: arrival is 3 after 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvad_trace trace;
        struct kvad_error err;
        assert_fails(read_text(cases[i].text, &trace, &err), cases[i].status, &err, cases[i].part);
        assert_null(trace.items);
    }
}

/* ---------------------------------------------------------------- running one */

struct host {
    struct kvad_model *model;
    size_t n_steps[KVAD_CACHE_POLICY_COUNT];
    size_t n_waiting;     /* steps at which somebody waited */
    int stop_at;          /* report that says stop; 0: none */
    const char *spoil_at; /* a report with this in it changes a weight */
    int n_before_spoil;   /* such reports that are let pass first */
    int n_reports;
    const struct kvad_engine *engine;
};

static bool report(void *user, const char *what, double done) {
    struct host *host = user;
    assert_true(done >= 0 && done <= 1);
    if (host->spoil_at && strstr(what, host->spoil_at) && host->n_before_spoil-- == 0) {
        float *weight = (float *)(void *)host->model->layers[0].out.panels;
        *weight += 1000;
        host->spoil_at = NULL;
    }
    return ++host->n_reports != host->stop_at;
}

static void engine_in_use(void *user, struct kvad_engine *engine) {
    struct host *host = user;
    host->engine = engine;
}

/* What must hold after every step. */
static void check_step(void *user, const struct kvad_trace_step *step) {
    struct host *host = user;
    const uint64_t *bytes = step->bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < KVAD_TRACE_PLACES; i++) {
        assert_true(bytes[i] <= step->budget);
        sum += bytes[i];
    }
    assert_int_equal(sum, step->budget);
    assert_int_equal(step->held, bytes[KVAD_TRACE_LIVE] + bytes[KVAD_TRACE_LATER] +
                                     bytes[KVAD_TRACE_NEVER] + bytes[KVAD_TRACE_REMAINDER]);
    /* The pool, or the areas, say the same as the requests that hold them. */
    struct kvad_engine_info info;
    kvad_engine_get_info(host->engine, &info);
    assert_int_equal(step->held, info.kv_bytes);
    if (step->policy == KVAD_CACHE_STATIC) assert_int_equal(bytes[KVAD_TRACE_REMAINDER], 0);
    if (step->policy != KVAD_CACHE_STATIC)
        assert_int_equal(bytes[KVAD_TRACE_LATER] + bytes[KVAD_TRACE_NEVER], 0);
    if (step->policy != KVAD_CACHE_GROW) assert_int_equal(bytes[KVAD_TRACE_COPIES], 0);
    host->n_steps[step->policy]++;
    host->n_waiting += step->n_waiting > 0;
}

static enum kvad_status run(struct host *host, const struct kvad_trace *trace, uint64_t budget,
                            struct kvad_trace_result *result, struct kvad_error *err) {
    struct kvad_trace_options options = {.trace = trace,
                                         .budget = budget,
                                         .n_threads = 2,
                                         .cpu = test_cpu(),
                                         .n_rounds = 2,
                                         .n_batches = 1,
                                         .report = report,
                                         .engine_in_use = engine_in_use,
                                         .on_step = check_step,
                                         .user = host};
    assert_int_equal(kvad_synthetic_build("tiny", 1, NULL, &host->model, NULL), KVAD_OK);
    options.model = host->model;
    enum kvad_status status = kvad_trace_run(&options, result, err);
    assert_null(host->engine);
    kvad_model_release(&host->model);
    return status;
}

/* Bytes of a token of "tiny": two layers of 64 floats, K and V. */
enum { TOKEN = 2 * 2 * 64 * 4 };

static void test_bytes_add_up_to_the_budget_after_every_step_on_every_policy(void **state) {
    (void)state;
    for (uint64_t budget = 128 * TOKEN; budget <= 320 * TOKEN; budget += 77777) {
        struct host host = {0};
        struct kvad_trace trace;
        struct kvad_trace_result result;
        struct kvad_error err;
        assert_ok(kvad_trace_make(&trace, 14, budget, N_CTX, &err), &err);
        for (size_t i = 0; i < trace.n; i++)
            trace.items[i].arrival /= 4;
        assert_ok(run(&host, &trace, budget, &result, &err), &err);
        assert_false(result.is_void);
        assert_int_equal(result.budget, budget);
        for (size_t i = 0; i < KVAD_TRACE_POLICIES; i++) {
            const struct kvad_trace_policy *p = &result.policies[i];
            double percent = 0;
            for (size_t k = 0; k < KVAD_TRACE_PLACES; k++)
                percent += p->percent[k];
            assert_true(percent > 99.999 && percent < 100.001);
            assert_int_equal(host.n_steps[p->policy], p->n_steps);
            assert_int_equal(p->n_refused, 0);
            assert_int_equal(p->n_output_tokens, result.n_output_tokens);
            assert_true(p->mean_in_flight >= 1 && p->mean_in_flight <= (double)p->max_in_flight);
            assert_true(p->waste_percent > 0 && p->waste_percent < 100);
            /* Who loses blocks on the way gets less than the others, and nobody starves. */
            assert_true(p->n_preemptions > 0 ? p->fairness > 0.5 && p->fairness < 1
                                             : p->fairness > 1 - 1e-12);
            assert_true(p->longest_wait >= 1 && p->longest_wait < p->n_steps);
        }
        assert_true(host.n_waiting > 0);
        const struct kvad_trace_policy *reserved = &result.policies[1],
                                       *paged = &result.policies[2];
        assert_int_equal(reserved->max_in_flight, budget / (N_CTX * TOKEN));
        assert_true(paged->max_in_flight > reserved->max_in_flight);
        assert_true(paged->n_steps < reserved->n_steps);
        assert_true(paged->waste_percent < reserved->waste_percent);
        assert_true(result.policies[0].copied_bytes > 0 && paged->copied_bytes == 0);
        kvad_trace_deinit(&trace);
    }
}

/* Tokens of room, mean over steps, by place. */
static void assert_places(const struct kvad_trace_policy *p, const double tokens[]) {
    for (size_t i = 0; i < KVAD_TRACE_PLACES; i++) {
        if (fabs(p->percent[i] - 100 * tokens[i] / N_CTX) < 1e-9) continue;
        fail_msg("%s, %s: %g %%, not of %g tokens", kvad_cache_policy_name(p->policy),
                 kvad_trace_place_name((enum kvad_trace_place)i), p->percent[i], tokens[i]);
    }
}

/* Prompts of 3 and 7, outputs of 5 and 2. */
static void run_by_hand(uint64_t budget, struct kvad_trace_result *result) {
    struct kvad_trace_item items[] = {{0, 3, 5}, {0, 7, 2}};
    struct kvad_trace trace = {items, 2};
    struct host host = {0};
    struct kvad_error err;
    assert_ok(run(&host, &trace, budget, result, &err), &err);
}

/* In the bytes of one context of 64 the second one waits for a static area over five steps, which
 * end with 3, 4, 5, 6 and no tokens held. With blocks of 16 both start at once, and the second one
 * ends in the second of five steps. */
static void test_places_and_means_are_those_counted_by_hand(void **state) {
    (void)state;
    struct kvad_trace_result result;
    run_by_hand(N_CTX * TOKEN, &result);
    const struct kvad_trace_policy *grow = &result.policies[0], *reserved = &result.policies[1],
                                   *paged = &result.policies[2];
    /* live, later, never, remainder, copies, free */
    assert_places(reserved, (const double[]){18 / 5.0, 10 / 5.0, 4 * 57 / 5.0, 0, 0, 64 / 5.0});
    assert_places(grow, (const double[]){25 / 5.0, 0, 0, 55 / 5.0, 4 * 16 / 5.0, 176 / 5.0});
    assert_places(paged, (const double[]){25 / 5.0, 0, 0, 55 / 5.0, 0, 240 / 5.0});
    assert_true(fabs(reserved->waste_percent - (100 - 100 * 18 / 256.0)) < 1e-9);
    assert_true(fabs(paged->waste_percent - (100 - 100 * 25 / 80.0)) < 1e-9);
    assert_true(reserved->n_steps == 7 && grow->n_steps == 5 && paged->n_steps == 5);
    assert_true(reserved->mean_in_flight == 1 && fabs(paged->mean_in_flight - 7 / 5.0) < 1e-12);
    assert_true(reserved->max_in_flight == 1 && paged->max_in_flight == 2);
    assert_true(fabs(reserved->mean_waiting - 5 / 7.0) < 1e-12 && paged->mean_waiting == 0);
    /* The second one's first token is the sixth step's; once begun, all get a token a step. */
    assert_true(reserved->longest_wait == 6 && grow->longest_wait == 1 && paged->longest_wait == 1);
    assert_true(reserved->fairness == 1 && grow->fairness == 1 && paged->fairness == 1);
}

static void test_rows_of_padded_and_ragged_batches_are_counted(void **state) {
    (void)state;
    struct kvad_trace_result result;
    run_by_hand(0, &result);
    const struct kvad_trace_padded *p = &result.padded;
    assert_int_equal(p->padded_rows, 2 * (7 + 4));
    assert_int_equal(p->ragged_rows, (3 + 4) + (7 + 1));
    assert_int_equal(p->n_measured, 1);
    assert_int_equal(p->measured_padded, p->padded_rows);
    assert_int_equal(p->measured_ragged, p->ragged_rows);
    /* A row of the layers, a row of logits, a token that a row sees. */
    double row = 2.0 * 2 * 12 * 64 * 64, head = 2.0 * 301 * 64, pair = 2.0 * 4 * 64;
    assert_true(p->ragged_flops == 15 * row + 7 * head + (7 * 8 / 2 + 8 * 9 / 2) * pair);
    assert_true(p->padded_flops == 22 * row + 10 * head + 2 * (11 * 12 / 2) * pair);
    assert_int_equal(result.budget, 4 * N_CTX * TOKEN);
    assert_true(p->padded_seconds > 0 && p->ragged_seconds > 0);
    assert_int_equal(result.prefix.tokens_off, 16 * 48);
    assert_int_equal(result.prefix.tokens_on, 32 + 16 * 16);
    assert_true(result.prefix.last_off.median >= result.prefix.mean_off.median);
    assert_true(result.prefix.last_on.median >= result.prefix.mean_on.median);
    for (size_t i = 0; i < KVAD_TRACE_OVERHEADS; i++)
        assert_true(result.overheads[i].step_us > result.overheads[i].forward_us);
}

static void test_a_run_is_void_when_a_way_gives_other_tokens(void **state) {
    (void)state;
    static const char *const ways[] = {"paged", "padded", "beginning"};
    static const int n_before[] = {0, 0, 1}; /* the first beginning is the one that is compared */
    for (size_t i = 0; i < 3; i++) {
        struct kvad_trace_item items[] = {{0, 9, 30}, {0, 7, 30}, {0, 8, 30}};
        struct kvad_trace trace = {items, 3};
        struct host host = {.spoil_at = ways[i], .n_before_spoil = n_before[i]};
        struct kvad_trace_result result;
        struct kvad_error err;
        assert_ok(run(&host, &trace, 0, &result, &err), &err);
        assert_true(result.is_void);
        assert_non_null(strstr(result.void_why, ways[i]));
    }
}

static void test_a_run_can_be_stopped_at_every_report_and_leaves_nothing(void **state) {
    (void)state;
    struct kvad_trace_item items[] = {{0, 9, 20}, {3, 7, 20}, {50, 8, 3}};
    struct kvad_trace trace = {items, 3};
    struct kvad_trace_result result;
    struct kvad_error err;
    for (int stop_at = 1;; stop_at++) {
        struct host host = {.stop_at = stop_at};
        enum kvad_status status = run(&host, &trace, 0, &result, &err);
        if (host.n_reports < stop_at) break;
        assert_int_equal(status, KVAD_ERR_CANCELLED);
    }
}

static void test_a_budget_below_one_context_is_refused(void **state) {
    (void)state;
    struct kvad_trace_item items[] = {{0, 9, 20}};
    struct kvad_trace trace = {items, 1};
    struct host host = {0};
    struct kvad_trace_result result;
    struct kvad_error err;
    assert_fails(run(&host, &trace, 64 * TOKEN - 1, &result, &err), KVAD_ERR_NO_BLOCKS, &err,
                 "static");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_made_up_trace_is_a_function_of_its_seed_and_within_its_bounds),
        cmocka_unit_test(test_lines_of_json_are_a_trace),
        cmocka_unit_test(test_lines_that_are_no_requests_are_refused_by_number),
        cmocka_unit_test(test_bytes_add_up_to_the_budget_after_every_step_on_every_policy),
        cmocka_unit_test(test_places_and_means_are_those_counted_by_hand),
        cmocka_unit_test(test_rows_of_padded_and_ragged_batches_are_counted),
        cmocka_unit_test(test_a_run_is_void_when_a_way_gives_other_tokens),
        cmocka_unit_test(test_a_run_can_be_stopped_at_every_report_and_leaves_nothing),
        cmocka_unit_test(test_a_budget_below_one_context_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
