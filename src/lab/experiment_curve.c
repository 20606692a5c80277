/* The curve over contexts: which contexts the budget has room for, their cases, what follows. */
#include <stdlib.h>

#include "base/error.h"
#include "lab/experiment_internal.h"

/* What the curve may take of the whole budget. */
static const double curve_share = 0.45;

static const uint32_t policies[] = {KVAD_CACHE_NONE, KVAD_CACHE_GROW, KVAD_CACHE_STATIC,
                                    KVAD_CACHE_PAGED};

static uint32_t longest_context(const struct experiment *x) {
    return x->info.n_ctx - 1;
}

/* ---- a first guess */

/* One step with and one without a cache, at a context that costs little. */
static enum kvad_status guess(struct experiment *x, struct kvad_error *err) {
    static const uint32_t two[] = {KVAD_CACHE_NONE, KVAD_CACHE_PAGED};
    uint32_t context = longest_context(x) < 64 ? longest_context(x) : 64;
    struct experiment_bench what = {.model = x->model,
                                    .policies = {two, 2, false},
                                    .contexts = {&context, 1, false},
                                    .n_threads = x->options->n_threads,
                                    .n_rounds = 1};
    struct kvad_bench_result result;
    x->stage = "a first look";
    enum kvad_status status = experiment_bench(x, &what, &result, err);
    x->stage = NULL;
    if (status == KVAD_OK && !x->result->is_void) {
        x->row_seconds = result.cases[0].ms.median * 1e-3 / (context + 1);
        x->step_seconds = result.cases[1].ms.median * 1e-3;
        x->n_threads = result.n_threads;
    }
    kvad_bench_result_deinit(&result);
    return status;
}

/* ---- contexts */

static double sample_seconds(const struct experiment *x, double step) {
    return step > x->sample_seconds ? step : x->sample_seconds;
}

/* What the cases of one context take: without a cache attention grows, and `grow` copies. */
static double context_seconds(const struct experiment *x, uint32_t context) {
    double naive = x->row_seconds * (context + 1) * (1 + 0.3 * context / x->info.n_ctx);
    double copies = (double)context * (double)x->info.kv_bytes_per_token * 1e-9;
    double step = 1.3 * x->step_seconds;
    double taken = sample_seconds(x, naive) + 2 * sample_seconds(x, step);
    taken += sample_seconds(x, step + copies);
    return taken * (x->n_rounds + 3) + 8 * x->sample_seconds * x->n_rounds;
}

static double curve_seconds(const struct experiment *x) {
    /* In every other round, three caches are filled up to the longest context. */
    double seconds = 3 * x->row_seconds * x->contexts[x->n_contexts - 1] * (x->n_rounds / 2 + 2);
    for (size_t i = 0; i < x->n_contexts; i++)
        seconds += context_seconds(x, x->contexts[i]);
    return seconds;
}

/* Leave every second one out; the first and the last stay. */
static void thin_out(struct experiment *x) {
    size_t n = 0, last = x->n_contexts - 1;
    for (size_t i = 0; i <= last; i++)
        if (i % 2 == 0 || i == last) x->contexts[n++] = x->contexts[i];
    x->n_contexts = n;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static enum kvad_status choose_contexts(struct experiment *x, struct kvad_error *err) {
    static const uint32_t usual[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1000, 1023};
    static const uint32_t few[] = {1, 16, 128, 512, 1023};
    struct kvad_bench_list list = x->options->contexts;
    bool is_given = list.n > 0;
    if (!is_given) list = (struct kvad_bench_list){usual, sizeof usual / sizeof *usual, true};
    if (!is_given && x->options->quick)
        list = (struct kvad_bench_list){few, sizeof few / sizeof *few, true};
    x->contexts = kvad_alloc_zero(&x->heap, list.n, sizeof *x->contexts);
    if (!x->contexts) return kvad_fail_memory(err, "contexts", list.n * sizeof *x->contexts);
    x->max_contexts = list.n;
    for (size_t i = 0; i < list.n; i++) {
        uint32_t context = list.items[i];
        if (context > longest_context(x) && !list.fits)
            return kvad_fail(err, KVAD_ERR_CONTEXT_FULL,
                             "context %u is more than the %u tokens that this model allows",
                             context, longest_context(x));
        x->contexts[i] = context > longest_context(x) ? longest_context(x) : context;
    }
    qsort(x->contexts, list.n, sizeof *x->contexts, compare);
    for (size_t i = 0; i < list.n; i++)
        if (x->n_contexts == 0 || x->contexts[i] != x->contexts[x->n_contexts - 1])
            x->contexts[x->n_contexts++] = x->contexts[i];
    if (x->n_contexts < 2)
        return kvad_fail(err, KVAD_ERR_ARGUMENT, "an experiment needs at least two contexts");
    size_t n_wanted = x->n_contexts;
    while (!is_given && x->n_contexts > 2 &&
           curve_seconds(x) > curve_share * x->result->budget_seconds)
        thin_out(x);
    x->result->n_left_out = n_wanted - x->n_contexts;
    return KVAD_OK;
}

/* ---- points */

static void fill_point(struct kvad_experiment_point *point, const struct kvad_bench_case *cases) {
    point->context = cases->context;
    for (size_t i = 0; i < KVAD_CACHE_POLICY_COUNT; i++)
        point->cases[cases[i].policy] = &cases[i];
    const struct kvad_bench_case *naive = point->cases[KVAD_CACHE_NONE];
    const struct kvad_bench_case *cached = point->cases[KVAD_CACHE_PAGED];
    point->time_ratio = naive->ms.median / cached->ms.median;
    point->flop_ratio = naive->flops / cached->flops;
    point->byte_ratio = naive->bytes / cached->bytes;
    point->thrown_away_percent = 100 * (1 - cached->flops / naive->flops);
}

static enum kvad_status fill_points(struct experiment *x, struct kvad_error *err) {
    struct kvad_experiment_result *result = x->result;
    result->points = calloc(x->n_contexts, sizeof *result->points);
    result->contexts = calloc(x->n_contexts, sizeof *result->contexts);
    if (!result->points || !result->contexts)
        return kvad_fail_memory(err, "an experiment", x->n_contexts * sizeof *result->points);
    result->n_points = x->n_contexts;
    for (size_t i = 0; i < x->n_contexts; i++) {
        result->contexts[i] = x->contexts[i];
        fill_point(&result->points[i], &result->curve.cases[KVAD_CACHE_POLICY_COUNT * i]);
    }
    return KVAD_OK;
}

enum kvad_status experiment_measure_curve(struct experiment *x, struct kvad_error *err) {
    static const uint32_t prefills[] = {128, 512};
    KVAD_TRY(guess(x, err));
    if (x->result->is_void) return KVAD_OK;
    KVAD_TRY(choose_contexts(x, err));
    struct experiment_bench what = {
        .model = x->model,
        .policies = {policies, KVAD_CACHE_POLICY_COUNT, false},
        .contexts = {x->contexts, x->n_contexts, false},
        .prefills = {prefills, x->options->quick ? 1 : 2, true},
        .n_threads = x->options->n_threads,
        .n_rounds = x->n_rounds,
    };
    KVAD_TRY(experiment_bench(x, &what, &x->result->curve, err));
    return x->result->is_void ? KVAD_OK : fill_points(x, err);
}

/* ---- the gap */

static double smaller(double a, double b) {
    return a < b ? a : b;
}

/* The time of a part beyond what its operations would take at `rate` is that of its bytes: the
 * naive step has the same bytes and hides them behind a hundred times the operations. */
void experiment_explain(const struct kvad_experiment_point *point,
                        struct kvad_experiment_gap *gap) {
    const struct kvad_bench_case *naive = point->cases[KVAD_CACHE_NONE];
    const struct kvad_bench_case *cached = point->cases[KVAD_CACHE_PAGED];
    double per_ms = naive->flops / naive->ms.median;
    double linear = experiment_parts_ms(cached, EXPERIMENT_LINEAR);
    double cache = experiment_parts_ms(cached, EXPERIMENT_CACHE);
    double linear_flops = cached->flops - cached->attention_flops;
    double linear_ideal = smaller(linear, linear_flops / per_ms);
    double cache_ideal = smaller(cache, cached->attention_flops / per_ms);
    *gap = (struct kvad_experiment_gap){.context = point->context,
                                        .wall_ms = cached->ms.median,
                                        .ideal_ms = cached->flops / per_ms,
                                        .named_percent = cached->named_percent};
    gap->share_ms[KVAD_SHARE_WEIGHTS] = linear - linear_ideal;
    gap->share_ms[KVAD_SHARE_CACHE] = cache - cache_ideal;
    gap->share_ms[KVAD_SHARE_ARITHMETIC] =
        linear_ideal + cache_ideal + experiment_parts_ms(cached, EXPERIMENT_SMALL);
    gap->share_ms[KVAD_SHARE_SAMPLING] = experiment_parts_ms(cached, 1 << KVAD_PART_SAMPLING);
    gap->share_ms[KVAD_SHARE_SYNCHRONISATION] = experiment_parts_ms(cached, 1 << KVAD_PART_WAIT);
    gap->share_ms[KVAD_SHARE_OTHER] = experiment_parts_ms(cached, 1 << KVAD_PART_OTHER);
    gap->weights_floor_ms = 1e3 * (cached->bytes - cached->kv_bytes) / cached->read_rate;
    gap->cache_floor_ms = 1e3 * cached->kv_bytes / cached->read_rate;
}
