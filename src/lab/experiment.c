/* The order of an experiment: a first guess of the costs, the curve, controls, whole texts,
 * verdicts. */
#include "lab/experiment.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "lab/experiment_internal.h"

enum { PROMPT_TOKENS = 8, LEAST_CONTEXT = 4 };

/* ---- what the stages use */

double experiment_seconds(const struct experiment *x) {
    return (double)(kvad_clock_ns() - x->start) * 1e-9;
}

/* The part done is the part of the budget that is gone: a stage's length is not known before. */
static bool say(struct experiment *x, const char *what) {
    const struct kvad_experiment_options *o = x->options;
    double done = experiment_seconds(x) / x->result->budget_seconds;
    if (done > 0.99) done = 0.99;
    if (done > x->last_done) x->last_done = done;
    return !o->report || o->report(o->user, what, x->last_done);
}

enum kvad_status experiment_report(struct experiment *x, const char *what, struct kvad_error *err) {
    return say(x, what) ? KVAD_OK : kvad_fail(err, KVAD_ERR_CANCELLED, "interrupted");
}

/* What a bench calls back with. */
struct caller {
    struct experiment *x;
    struct kvad_model *model;
};

static enum kvad_status lend_model(void *user, enum kvad_weight_type weights,
                                   struct kvad_threads *threads, struct kvad_model **out,
                                   struct kvad_error *err) {
    (void)weights;
    (void)threads;
    (void)err;
    struct caller *caller = user;
    *out = kvad_model_retain(caller->model);
    return KVAD_OK;
}

static bool bench_reports(void *user, const char *what, double done) {
    (void)done;
    struct caller *caller = user;
    char text[160];
    if (!caller->x->stage) return say(caller->x, what);
    snprintf(text, sizeof text, "%s: %s", caller->x->stage, what);
    return say(caller->x, text);
}

static void bench_uses(void *user, struct kvad_engine *engine) {
    struct caller *caller = user;
    const struct kvad_experiment_options *o = caller->x->options;
    if (o->engine_in_use) o->engine_in_use(o->user, engine);
}

enum kvad_status experiment_bench(struct experiment *x, const struct experiment_bench *what,
                                  struct kvad_bench_result *result, struct kvad_error *err) {
    static const uint32_t weights[] = {KVAD_WEIGHTS_AUTO}, kv[] = {KVAD_KV_F32};
    struct caller caller = {x, what->model};
    struct kvad_bench_options options = {.open_model = lend_model,
                                         .user = &caller,
                                         .weights = {weights, 1, false},
                                         .kv = {kv, 1, false},
                                         .policies = what->policies,
                                         .contexts = what->contexts,
                                         .prefills = what->prefills,
                                         .n_rounds = what->n_rounds,
                                         .contexts_in_turn = true,
                                         .sample_seconds = x->sample_seconds,
                                         .ceiling_seconds = x->sample_seconds,
                                         .ceiling_bytes = what->ceiling_bytes,
                                         .n_threads = what->n_threads,
                                         .cpu = x->options->cpu,
                                         .block_tokens = x->options->block_tokens,
                                         .report = bench_reports,
                                         .engine_in_use = bench_uses};
    KVAD_TRY(kvad_bench_run(&options, result, err));
    if (!result->is_void) return KVAD_OK;
    x->result->is_void = true;
    snprintf(x->result->void_why, sizeof x->result->void_why, "%s", result->void_why);
    return KVAD_OK;
}

double experiment_parts_ms(const struct kvad_bench_case *c, unsigned parts) {
    double ms = 0;
    for (unsigned part = 0; part < KVAD_PART_COUNT; part++)
        if (parts & 1u << part) ms += c->parts[part].ms;
    /* One sample had clocks, the others say what a step usually takes. */
    return ms * c->ms.median / c->parts_wall_ms;
}

struct kvad_curve experiment_curve(const struct kvad_experiment_result *result,
                                   enum kvad_cache_policy policy, double *ms) {
    for (size_t i = 0; i < result->n_points; i++)
        ms[i] = result->points[i].cases[policy]->ms.median;
    return (struct kvad_curve){result->contexts, ms, result->n_points};
}

/* ---- verdicts */

/* One row of the layers, and one token that a row sees. */
static void count_operations(const struct experiment *x, struct kvad_claim_facts *facts) {
    struct kvad_work_step step = {.n_sequences = 1, .n_rows = 1, .n_batch_rows = 1};
    struct kvad_work work = kvad_work_of(x->model, &step);
    facts->linear_flops_per_row = work.linear_flops;
    facts->attention_flops_per_pair = work.attention_flops;
}

static double attention_percent(const struct kvad_bench_case *c) {
    double ms = experiment_parts_ms(c, 1 << KVAD_PART_STORE_KV | 1 << KVAD_PART_ATTENTION);
    return 100 * ms / c->ms.median;
}

enum kvad_status experiment_judge(struct experiment *x, struct kvad_error *err) {
    struct kvad_experiment_result *result = x->result;
    size_t n = result->n_points;
    double *numbers = kvad_alloc_zero(&x->heap, 4 * n, sizeof *numbers);
    if (!numbers) return kvad_fail_memory(err, "claims", 4 * n * sizeof *numbers);
    const struct kvad_experiment_point *last = &result->points[n - 1];
    const struct kvad_experiment_gap *gap = &result->gap;
    for (size_t i = 0; i < n; i++) {
        numbers[2 * n + i] = attention_percent(result->points[i].cases[KVAD_CACHE_NONE]);
        numbers[3 * n + i] = attention_percent(result->points[i].cases[KVAD_CACHE_PAGED]);
    }
    struct kvad_claim_facts facts = {
        .naive = experiment_curve(result, KVAD_CACHE_NONE, numbers),
        .cached = experiment_curve(result, KVAD_CACHE_PAGED, numbers + n),
        .naive_attention_percent = numbers + 2 * n,
        .cached_attention_percent = numbers + 3 * n,
        .flop_ratio = last->flop_ratio,
        .byte_ratio = last->byte_ratio,
        .n_prompt = result->n_prompt,
        .n_tokens = result->n_tokens,
        .naive_seconds = result->totals[KVAD_CACHE_NONE].seconds,
        .cached_seconds = result->totals[KVAD_CACHE_PAGED].seconds,
        .gap_ms = gap->wall_ms - gap->ideal_ms,
        .overhead_ms = gap->share_ms[KVAD_SHARE_SYNCHRONISATION] + gap->share_ms[KVAD_SHARE_OTHER],
        .n_ctx = x->info.n_ctx};
    count_operations(x, &facts);
    kvad_claims_judge(&facts, result->claims);
    kvad_free(&x->heap, numbers, 4 * n * sizeof *numbers);
    return KVAD_OK;
}

/* ---- the whole */

static enum kvad_status open(struct experiment *x, struct kvad_error *err) {
    const struct kvad_experiment_options *o = x->options;
    KVAD_TRY(experiment_report(x, "opening the model", err));
    KVAD_TRY(o->open_model(o->user, KVAD_WEIGHTS_AUTO, NULL, &x->model, err));
    kvad_model_get_info(x->model, &x->info);
    if (x->info.n_ctx < LEAST_CONTEXT)
        return kvad_fail(err, KVAD_ERR_CONTEXT_FULL,
                         "an experiment needs a context of %d tokens, this model has %u",
                         LEAST_CONTEXT, x->info.n_ctx);
    return KVAD_OK;
}

static enum kvad_status stages(struct experiment *x, struct kvad_error *err) {
    struct kvad_experiment_result *result = x->result;
    KVAD_TRY(open(x, err));
    KVAD_TRY(experiment_measure_curve(x, err));
    if (result->is_void) return KVAD_OK;
    uint32_t end = result->points[result->n_points - 1].context + 1;
    result->n_prompt = end / 4 < PROMPT_TOKENS ? (end + 3) / 4 : PROMPT_TOKENS;
    result->n_tokens = end - result->n_prompt;
    experiment_explain(&result->points[result->n_points - 1], &result->gap);
    KVAD_TRY(experiment_run_controls(x, err));
    if (result->is_void) return KVAD_OK;
    KVAD_TRY(experiment_measure_totals(x, err));
    if (result->is_void) return KVAD_OK;
    return experiment_judge(x, err);
}

enum kvad_status kvad_experiment_run(const struct kvad_experiment_options *options,
                                     struct kvad_experiment_result *result,
                                     struct kvad_error *err) {
    *result = (struct kvad_experiment_result){0};
    double usual = options->quick ? 15 : 180;
    result->budget_seconds = options->budget_seconds > 0 ? options->budget_seconds : usual;
    struct experiment x = {.options = options, .result = result, .start = kvad_clock_ns()};
    x.n_rounds = options->n_rounds ? options->n_rounds : 5;
    x.sample_seconds = options->quick ? 0.003 : 0.02;
    if (options->sample_seconds > 0) x.sample_seconds = options->sample_seconds;
    kvad_heap_init(&x.heap, NULL);
    enum kvad_status status = stages(&x, err);
    kvad_model_release(&x.model);
    kvad_free(&x.heap, x.contexts, x.max_contexts * sizeof *x.contexts);
    result->seconds = experiment_seconds(&x);
    return status;
}

void kvad_experiment_result_deinit(struct kvad_experiment_result *result) {
    kvad_bench_result_deinit(&result->curve);
    free(result->points);
    free(result->contexts);
    *result = (struct kvad_experiment_result){0};
}

const char *kvad_experiment_share_name(enum kvad_experiment_share share) {
    static const char *const names[KVAD_SHARE_COUNT] = {"weights",  "cache",           "arithmetic",
                                                        "sampling", "synchronisation", "other"};
    return names[share];
}

const char *kvad_control_verdict_name(enum kvad_control_verdict verdict) {
    static const char *const names[] = {"holds", "fails", "not shown"};
    return names[verdict];
}
