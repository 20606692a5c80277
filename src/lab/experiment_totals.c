/* The time of a whole text under every policy: measured as far as the budget goes, the rest from
 * the curve; and the ids and bits of all of them compared. */
#include <stdio.h>

#include <xxhash.h>

#include "base/error.h"
#include "lab/experiment_internal.h"

enum { LEAST_TOKENS = 16, REPORT_EVERY = 8 };

/* What the first policy drew, or a later one that went further. */
struct text {
    int32_t *ids;   /* [n] */
    uint64_t *bits; /* [n] hashes of the logits */
    size_t n;
};

/* The step that draws token i. */
static struct bench_step step_of(const struct experiment *x, const struct bench_rig *rig,
                                 size_t i) {
    uint32_t n_prompt = x->result->n_prompt;
    if (i == 0) return (struct bench_step){0, n_prompt, 1};
    return bench_decode_step(rig, n_prompt + i - 1, 1);
}

static enum kvad_status compare(struct experiment *x, const struct bench_rig *rig,
                                struct text *text, size_t i) {
    uint64_t bits = XXH3_64bits(rig->logits, rig->n_vocab * sizeof *rig->logits);
    if (i == text->n) {
        text->ids[i] = rig->tokens[0];
        text->bits[i] = bits;
        text->n++;
    } else if (text->ids[i] != rig->tokens[0] || text->bits[i] != bits) {
        x->result->is_void = true;
        snprintf(x->result->void_why, sizeof x->result->void_why,
                 "cache policies differ at token %zu of a whole text", i);
    }
    return KVAD_OK;
}

static enum kvad_status draw_tokens(struct experiment *x, struct bench_rig *rig, struct text *text,
                                    struct kvad_experiment_total *total, struct kvad_error *err) {
    char what[64];
    uint64_t ns = 0;
    for (size_t i = 0; i < total->n_measured && !x->result->is_void; i++) {
        struct bench_step step = step_of(x, rig, i);
        snprintf(what, sizeof what, "text, token %zu of %u, cache %s", i, total->n_measured,
                 kvad_cache_policy_name(rig->policy));
        if (i % REPORT_EVERY == 0) KVAD_TRY(experiment_report(x, what, err));
        KVAD_TRY(bench_rig_go_on(rig, &step, &ns, err));
        KVAD_TRY(compare(x, rig, text, i));
    }
    total->measured_seconds = (double)ns * 1e-9;
    return KVAD_OK;
}

/* Two steps to warm up, then the text from its beginning. */
static enum kvad_status run_rig(struct experiment *x, struct bench_rig *rig, struct text *text,
                                struct kvad_experiment_total *total, struct kvad_error *err) {
    struct bench_step first = step_of(x, rig, 0);
    uint64_t ignored = 0;
    for (int i = 0; i < 2; i++)
        KVAD_TRY(bench_rig_step(rig, &first, NULL, &ignored, err));
    return draw_tokens(x, rig, text, total, err);
}

static enum kvad_status run_policy(struct experiment *x, struct kvad_threads *threads,
                                   struct text *text, struct kvad_experiment_total *total,
                                   struct kvad_error *err) {
    const struct kvad_experiment_options *o = x->options;
    struct kvad_engine_options options;
    kvad_engine_options_init(&options);
    options.threads = threads;
    options.cpu = o->cpu;
    options.block_tokens = o->block_tokens;
    options.cache = total->policy;
    options.n_sequences = 1;
    options.n_ctx = x->result->n_prompt + x->result->n_tokens;
    struct bench_rig rig = {0};
    enum kvad_status status = bench_rig_open(&rig, x->model, &options, &x->heap, err);
    if (o->engine_in_use) o->engine_in_use(o->user, rig.engine);
    if (status == KVAD_OK) status = run_rig(x, &rig, text, total, err);
    if (o->engine_in_use) o->engine_in_use(o->user, NULL);
    bench_rig_close(&rig);
    return status;
}

/* The first n tokens by the curve. */
static double interpolate(const struct experiment *x, const struct kvad_curve *curve, size_t n) {
    return kvad_curve_seconds(curve, x->result->n_prompt - 1, n);
}

/* How many tokens fit `seconds`: all, or some. */
static uint32_t plan(const struct experiment *x, const struct kvad_curve *curve, double seconds) {
    uint32_t n = x->result->n_tokens;
    if (interpolate(x, curve, n) <= seconds) return n;
    uint32_t low = n < LEAST_TOKENS ? n : LEAST_TOKENS, high = n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (interpolate(x, curve, middle) <= seconds)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum kvad_status measure_policy(struct experiment *x, struct kvad_threads *threads,
                                       struct text *text, const struct kvad_curve *curve,
                                       double seconds, struct kvad_experiment_total *total,
                                       struct kvad_error *err) {
    total->n_measured = plan(x, curve, seconds);
    total->is_measured = total->n_measured == x->result->n_tokens;
    KVAD_TRY(run_policy(x, threads, text, total, err));
    total->measured_interpolated_seconds = interpolate(x, curve, total->n_measured);
    total->interpolated_seconds = interpolate(x, curve, x->result->n_tokens);
    total->seconds = total->interpolated_seconds - total->measured_interpolated_seconds;
    total->seconds = total->measured_seconds + (total->is_measured ? 0 : total->seconds);
    return KVAD_OK;
}

/* Operations of the text with and without a cache. */
static void count_text(struct experiment *x) {
    struct kvad_experiment_result *result = x->result;
    double naive = 0, cached = 0;
    for (uint32_t i = 0; i < result->n_tokens; i++) {
        struct kvad_work_step step = {.n_sequences = 1,
                                      .n_rows = result->n_prompt + i,
                                      .n_logits = 1,
                                      .n_batch_rows = result->n_prompt + i};
        struct kvad_work all = kvad_work_of(x->model, &step);
        naive += all.linear_flops + all.attention_flops;
        if (i > 0) {
            step.position = step.n_rows - 1;
            step.n_rows = 1;
        }
        struct kvad_work one = kvad_work_of(x->model, &step);
        cached += one.linear_flops + one.attention_flops;
    }
    result->total_flop_ratio = naive / cached;
    result->total_thrown_away_percent = 100 * (1 - cached / naive);
}

/* The cheap policies first: what they leave of their share is for the others. */
static enum kvad_status measure_all(struct experiment *x, struct kvad_threads *threads,
                                    struct text *text, double *ms, struct kvad_error *err) {
    static const enum kvad_cache_policy order[] = {KVAD_CACHE_STATIC, KVAD_CACHE_PAGED,
                                                   KVAD_CACHE_GROW, KVAD_CACHE_NONE};
    for (size_t i = 0; i < KVAD_CACHE_POLICY_COUNT && !x->result->is_void; i++) {
        struct kvad_curve curve = experiment_curve(x->result, order[i], ms);
        struct kvad_experiment_total *total = &x->result->totals[order[i]];
        double left = x->result->budget_seconds - experiment_seconds(x);
        total->policy = order[i];
        KVAD_TRY(measure_policy(x, threads, text, &curve, left / (double)(4 - i), total, err));
    }
    return KVAD_OK;
}

enum kvad_status experiment_measure_totals(struct experiment *x, struct kvad_error *err) {
    size_t n = x->result->n_tokens, n_points = x->result->n_points;
    struct kvad_threads *threads = NULL;
    struct text text = {.ids = kvad_alloc_zero(&x->heap, n, sizeof *text.ids),
                        .bits = kvad_alloc_zero(&x->heap, n, sizeof *text.bits)};
    double *ms = kvad_alloc_zero(&x->heap, n_points, sizeof *ms);
    enum kvad_status status = text.ids && text.bits && ms
                                  ? kvad_threads_create(x->options->n_threads, NULL, &threads, err)
                                  : kvad_fail_memory(err, "a text", n * sizeof *text.bits);
    if (status == KVAD_OK) status = measure_all(x, threads, &text, ms, err);
    if (status == KVAD_OK) count_text(x);
    kvad_threads_release(&threads);
    kvad_free(&x->heap, text.ids, n * sizeof *text.ids);
    kvad_free(&x->heap, text.bits, n * sizeof *text.bits);
    kvad_free(&x->heap, ms, n_points * sizeof *ms);
    return status;
}
