/* The order of a bench: for each type of weights and cache, contexts, then prompts, then batches;
 * inside each, rounds over the policies with the ceilings between. */
#include "lab/bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "lab/bench_internal.h"

enum { CHAIN_TOKENS = 8 }; /* decoded on every policy before anything is timed */

/* ---- lists */

static int compare_numbers(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Copy a list to `out`, ascending, each number once, none above `longest`. */
static enum kvad_status fit_list(const struct kvad_bench_list *list, const char *what,
                                 uint32_t longest, uint32_t *out, struct kvad_bench_list *fitted,
                                 struct kvad_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        out[i] = list->items[i];
        if (out[i] <= longest) continue;
        if (!list->fits)
            return kvad_fail(err, KVAD_ERR_CONTEXT_FULL,
                             "%s %u is more than the %u tokens that this model allows", what,
                             out[i], longest);
        out[i] = longest;
    }
    qsort(out, list->n, sizeof *out, compare_numbers);
    for (size_t i = 0; i < list->n; i++)
        if (n == 0 || out[i] != out[n - 1]) out[n++] = out[i];
    *fitted = (struct kvad_bench_list){out, n, true};
    return KVAD_OK;
}

/* The lists of lengths as this model can hold them: a context leaves room for one more token. */
static enum kvad_status fit_lists(struct bench_run *run, struct kvad_error *err) {
    const struct kvad_bench_options *o = run->options;
    uint32_t n_ctx = run->result->model.n_ctx, *numbers = run->numbers;
    KVAD_TRY(fit_list(&o->contexts, "context", n_ctx - 1, numbers, &run->contexts, err));
    numbers += o->contexts.n;
    KVAD_TRY(fit_list(&o->prefills, "prefill", n_ctx, numbers, &run->prefills, err));
    numbers += o->prefills.n;
    return fit_list(&o->batches, "batch", UINT32_MAX, numbers, &run->batches, err);
}

static uint32_t last_of(const struct kvad_bench_list *list) {
    return list->n > 0 ? list->items[list->n - 1] : 0;
}

/* ---- rigs of one type of weights and cache */

/* What is measured with one type of the cache. */
struct group {
    enum kvad_kv_type kv;
    struct bench_rig *rigs;        /* [n_policies] */
    struct bench_answer *answers;  /* [n_contexts] what a step at each context gives */
    struct bench_case_run *cases;  /* [n_together * n_policies] measured together */
    size_t n_policies, n_together; /* contexts */
};

static struct kvad_engine_options engine_options(const struct bench_run *run, enum kvad_kv_type kv,
                                                 enum kvad_cache_policy policy) {
    struct kvad_engine_options options;
    kvad_engine_options_init(&options);
    options.threads = run->threads;
    options.cpu = run->options->cpu;
    options.block_tokens = run->options->block_tokens;
    options.cache = policy;
    options.k_type = options.v_type = kv;
    options.n_sequences = 1;
    return options;
}

/* Index of the policy that prefill and batches use: the last one, which is `paged` unless the user
 * wants another. */
static size_t main_policy(const struct bench_run *run) {
    return run->options->policies.n - 1;
}

static enum kvad_status open_rigs(struct bench_run *run, struct group *group,
                                  struct kvad_error *err) {
    /* Room for the longest text, and for the chain at the shortest context. */
    uint32_t longest = last_of(&run->contexts) + 1;
    if (longest < run->contexts.items[0] + CHAIN_TOKENS)
        longest = run->contexts.items[0] + CHAIN_TOKENS;
    if (longest < last_of(&run->prefills)) longest = last_of(&run->prefills);
    if (longest > run->result->model.n_ctx) longest = run->result->model.n_ctx;
    for (size_t i = 0; i < group->n_policies; i++) {
        enum kvad_cache_policy policy = (enum kvad_cache_policy)run->options->policies.items[i];
        struct kvad_engine_options options = engine_options(run, group->kv, policy);
        options.n_ctx = longest;
        KVAD_TRY(bench_rig_open(&group->rigs[i], run->model, &options, &run->heap, err));
    }
    return KVAD_OK;
}

/* Some tokens decoded on every policy: the same ids and bits, or the run is void. */
static enum kvad_status check_chains(struct bench_run *run, struct group *group,
                                     struct kvad_error *err) {
    struct bench_answer expected = {0};
    size_t context = run->contexts.items[0];
    size_t n = kvad_min_size(CHAIN_TOKENS, group->rigs[0].n_ctx - context);
    for (size_t i = 0; i < group->n_policies; i++) {
        struct bench_answer got;
        KVAD_TRY(bench_rig_chain(&group->rigs[i], context, n, &got, err));
        if (bench_answer_agrees(&expected, got)) continue;
        run->result->is_void = true;
        snprintf(run->result->void_why, sizeof run->result->void_why,
                 "cache policies differ within the first %zu tokens after context %zu", n, context);
        return KVAD_OK;
    }
    return KVAD_OK;
}

/* No engine is in use: before one is closed. */
static void leave_engines(const struct bench_run *run) {
    if (run->options->engine_in_use) run->options->engine_in_use(run->options->user, NULL);
}

/* ---- cases that are measured together */

/* Rounds go down and up again: on the way down nothing is missing in the cache. */
static enum kvad_status measure(struct bench_run *run, struct bench_case_run *cases, size_t n,
                                struct kvad_error *err) {
    const bool *is_void = &run->result->is_void;
    for (size_t i = 0; i < n && !*is_void; i++)
        KVAD_TRY(bench_case_start(run, &cases[i], err));
    for (unsigned round = 0; round < run->options->n_rounds; round++)
        for (size_t i = 0; i < n && !*is_void; i++)
            KVAD_TRY(bench_case_round(run, &cases[round % 2 ? i : n - 1 - i], round, err));
    for (size_t i = 0; i < n && !*is_void; i++)
        KVAD_TRY(bench_case_finish(run, &cases[i], err));
    return KVAD_OK;
}

static enum kvad_status measure_and_close(struct bench_run *run, struct bench_case_run *cases,
                                          size_t n, struct kvad_error *err) {
    enum kvad_status status = measure(run, cases, n, err);
    for (size_t i = 0; i < n; i++)
        bench_case_close(run, &cases[i]);
    return status;
}

/* The contexts from the index-th on that are measured together, under every policy. */
static enum kvad_status decode_at(struct bench_run *run, struct group *group, size_t index,
                                  struct kvad_error *err) {
    size_t n = kvad_min_size(group->n_together, run->contexts.n - index) * group->n_policies;
    size_t n_open = 0;
    enum kvad_status status = KVAD_OK;
    for (; n_open < n && status == KVAD_OK; n_open++) {
        struct bench_rig *rig = &group->rigs[n_open % group->n_policies];
        size_t place = index + n_open / group->n_policies;
        uint32_t context = run->contexts.items[place];
        struct kvad_bench_case what = {.kind = KVAD_BENCH_DECODE,
                                       .weights = run->model->weights,
                                       .kv = group->kv,
                                       .policy = rig->policy,
                                       .context = context,
                                       .n_tokens = 1,
                                       .n_sequences = 1};
        status = bench_case_open(run, &group->cases[n_open], &what, rig,
                                 bench_decode_step(rig, context, 1), &group->answers[place], err);
    }
    if (status == KVAD_OK) return measure_and_close(run, group->cases, n_open, err);
    for (size_t i = 0; i < n_open; i++)
        bench_case_close(run, &group->cases[i]);
    return status;
}

static enum kvad_status prefill_of(struct bench_run *run, struct group *group, uint32_t n_tokens,
                                   struct kvad_error *err) {
    struct bench_rig *rig = &group->rigs[main_policy(run)];
    struct kvad_bench_case what = {.kind = KVAD_BENCH_PREFILL,
                                   .weights = run->model->weights,
                                   .kv = group->kv,
                                   .policy = rig->policy,
                                   .n_tokens = n_tokens,
                                   .n_sequences = 1};
    struct bench_step step = {0, n_tokens, 1};
    struct bench_case_run c;
    /* Decoding after n - 1 tokens must have given the same as reading all n at once. */
    struct bench_answer expected = {0};
    for (size_t i = 0; i < run->contexts.n; i++)
        if (run->contexts.items[i] + 1 == n_tokens) expected = group->answers[i];
    enum kvad_status status = bench_case_open(run, &c, &what, rig, step, &expected, err);
    if (status == KVAD_OK) return measure_and_close(run, &c, 1, err);
    bench_case_close(run, &c);
    return status;
}

static enum kvad_status batch_of(struct bench_run *run, struct group *group, struct bench_rig *rig,
                                 uint32_t n_sequences, struct kvad_error *err) {
    uint32_t context = run->contexts.items[0];
    struct kvad_bench_case what = {.kind = KVAD_BENCH_BATCH,
                                   .weights = run->model->weights,
                                   .kv = group->kv,
                                   .policy = rig->policy,
                                   .context = context,
                                   .n_tokens = 1,
                                   .n_sequences = n_sequences};
    struct bench_case_run c;
    /* The first sequence of a batch is the one that was decoded alone. */
    enum kvad_status status = bench_case_open(
        run, &c, &what, rig, bench_decode_step(rig, context, n_sequences), &group->answers[0], err);
    if (status == KVAD_OK) return measure_and_close(run, &c, 1, err);
    bench_case_close(run, &c);
    return status;
}

static enum kvad_status run_batches(struct bench_run *run, struct group *group,
                                    struct kvad_error *err) {
    if (run->batches.n == 0) return KVAD_OK;
    enum kvad_cache_policy policy =
        (enum kvad_cache_policy)run->options->policies.items[main_policy(run)];
    struct kvad_engine_options options = engine_options(run, group->kv, policy);
    options.n_ctx = run->contexts.items[0] + 1;
    options.n_sequences = last_of(&run->batches);
    struct bench_rig rig = {0};
    enum kvad_status status = bench_rig_open(&rig, run->model, &options, &run->heap, err);
    for (size_t i = 0; i < run->batches.n && status == KVAD_OK && !run->result->is_void; i++)
        status = batch_of(run, group, &rig, run->batches.items[i], err);
    leave_engines(run);
    bench_rig_close(&rig);
    return status;
}

static enum kvad_status run_group(struct bench_run *run, struct group *group,
                                  struct kvad_error *err) {
    const bool *is_void = &run->result->is_void;
    KVAD_TRY(open_rigs(run, group, err));
    KVAD_TRY(check_chains(run, group, err));
    for (size_t i = 0; i < run->contexts.n && !*is_void; i += group->n_together)
        KVAD_TRY(decode_at(run, group, i, err));
    for (size_t i = 0; i < run->prefills.n && !*is_void; i++)
        KVAD_TRY(prefill_of(run, group, run->prefills.items[i], err));
    return KVAD_OK;
}

static enum kvad_status run_kv(struct bench_run *run, enum kvad_kv_type kv,
                               struct kvad_error *err) {
    size_t n = run->options->policies.n;
    size_t n_together = run->options->contexts_in_turn ? run->contexts.n : 1;
    struct group group = {.kv = kv, .n_policies = n, .n_together = n_together};
    group.rigs = kvad_alloc_zero(&run->heap, n, sizeof *group.rigs);
    group.cases = kvad_alloc_zero(&run->heap, n_together * n, sizeof *group.cases);
    group.answers = kvad_alloc_zero(&run->heap, run->contexts.n, sizeof *group.answers);
    enum kvad_status status = group.rigs && group.cases && group.answers
                                  ? run_group(run, &group, err)
                                  : kvad_fail_memory(err, "a bench", n * sizeof *group.rigs);
    leave_engines(run);
    for (size_t i = 0; group.rigs && i < n; i++)
        bench_rig_close(&group.rigs[i]);
    if (status == KVAD_OK && !run->result->is_void) status = run_batches(run, &group, err);
    kvad_free(&run->heap, group.rigs, n * sizeof *group.rigs);
    kvad_free(&run->heap, group.cases, n_together * n * sizeof *group.cases);
    kvad_free(&run->heap, group.answers, run->contexts.n * sizeof *group.answers);
    return status;
}

/* ---- types of weights */

static enum kvad_status level_of(const struct bench_run *run, enum kvad_cpu_level *level,
                                 struct kvad_error *err) {
    *level = kvad_cpu_level_best();
    const char *name = run->options->cpu;
    if (name && (!kvad_cpu_level_from_name(name, level) || !kvad_cpu_level_supported(*level)))
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "this CPU cannot run level \"%s\"; best is %s",
                         name, kvad_cpu_level_name(kvad_cpu_level_best()));
    snprintf(run->result->cpu, sizeof run->result->cpu, "%s", kvad_cpu_level_name(*level));
    return KVAD_OK;
}

static enum kvad_status open_model(struct bench_run *run, enum kvad_weight_type weights,
                                   struct kvad_error *err) {
    const struct kvad_bench_options *o = run->options;
    uint64_t start = kvad_clock_ns();
    KVAD_TRY(o->open_model(o->user, weights, run->threads, &run->model, err));
    struct kvad_model_info info;
    kvad_model_get_info(run->model, &info);
    run->model_result = &run->result->models[run->result->n_models++];
    *run->model_result =
        (struct kvad_bench_model){.weights = run->model->weights,
                                  .load_ms = (double)(kvad_clock_ns() - start) * 1e-6,
                                  .weight_bytes = info.weight_bytes,
                                  .huge_page_bytes = kvad_machine_huge_page_bytes()};
    if (run->result->n_models > 1) return KVAD_OK;
    run->result->model = info;
    KVAD_TRY(fit_lists(run, err));
    run->n_units = o->weights.n * o->kv.n * (o->n_rounds + 2) *
                   (run->contexts.n * o->policies.n + run->prefills.n + run->batches.n);
    return KVAD_OK;
}

static enum kvad_status run_weights(struct bench_run *run, enum kvad_weight_type weights,
                                    struct kvad_error *err) {
    const struct kvad_bench_options *o = run->options;
    enum kvad_cpu_level level;
    KVAD_TRY(level_of(run, &level, err));
    KVAD_TRY(open_model(run, weights, err));
    KVAD_TRY(bench_ceilings_open(run, level, err));
    run->n_read = run->n_fma = run->n_dot = 0;
    for (size_t i = 0; i < o->kv.n && !run->result->is_void; i++)
        KVAD_TRY(run_kv(run, (enum kvad_kv_type)o->kv.items[i], err));
    run->model_result->read_rate = kvad_stats_of(run->read, run->n_read);
    run->model_result->fma_rate = kvad_stats_of(run->fma, run->n_fma);
    run->model_result->dot_rate = kvad_stats_of(run->dot, run->n_dot);
    return KVAD_OK;
}

/* ---- the whole */

static enum kvad_status check_options(const struct kvad_bench_options *o, struct kvad_error *err) {
    if (o->weights.n && o->kv.n && o->policies.n && o->contexts.n && o->n_rounds) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_ARGUMENT,
                     "bench: weights, kv, policies, contexts and rounds: at least one of each");
}

static enum kvad_status prepare(struct bench_run *run, struct kvad_error *err) {
    const struct kvad_bench_options *o = run->options;
    struct kvad_bench_result *result = run->result;
    size_t per_model = o->kv.n * (o->contexts.n * o->policies.n + o->prefills.n + o->batches.n);
    size_t n_numbers = o->contexts.n + o->prefills.n + o->batches.n;
    run->max_rates = per_model * o->n_rounds;
    run->numbers = kvad_alloc_zero(&run->heap, n_numbers, sizeof *run->numbers);
    run->read = kvad_alloc_zero(&run->heap, run->max_rates, sizeof *run->read);
    run->fma = kvad_alloc_zero(&run->heap, run->max_rates, sizeof *run->fma);
    run->dot = kvad_alloc_zero(&run->heap, run->max_rates, sizeof *run->dot);
    result->models = calloc(o->weights.n, sizeof *result->models);
    result->cases = calloc(o->weights.n * per_model, sizeof *result->cases);
    if (!run->numbers || !run->read || !run->fma || !run->dot || !result->models || !result->cases)
        return kvad_fail_memory(err, "a bench", run->max_rates * sizeof *run->read);
    KVAD_TRY(kvad_threads_create(o->n_threads, NULL, &run->threads, err));
    result->n_threads = kvad_threads_count(run->threads);
    return kvad_probe_init(&run->probe, run->threads, &run->heap, err);
}

static void clean_up(struct bench_run *run) {
    const struct kvad_bench_options *o = run->options;
    size_t n_numbers = o->contexts.n + o->prefills.n + o->batches.n;
    kvad_model_release(&run->model);
    kvad_probe_deinit(&run->probe, &run->heap);
    kvad_threads_release(&run->threads);
    kvad_free(&run->heap, run->numbers, n_numbers * sizeof *run->numbers);
    kvad_free(&run->heap, run->read, run->max_rates * sizeof *run->read);
    kvad_free(&run->heap, run->fma, run->max_rates * sizeof *run->fma);
    kvad_free(&run->heap, run->dot, run->max_rates * sizeof *run->dot);
    kvad_counters_close(&run->counters);
}

enum kvad_status kvad_bench_run(const struct kvad_bench_options *options,
                                struct kvad_bench_result *result, struct kvad_error *err) {
    *result = (struct kvad_bench_result){0};
    KVAD_TRY(check_options(options, err));
    struct bench_run run = {.options = options, .result = result};
    kvad_heap_init(&run.heap, NULL);
    kvad_machine_read(&result->machine);
    /* Before the workers are made: they inherit the counters. */
    kvad_counters_open(&run.counters);
    result->has_counters = run.counters.is_any;
    snprintf(result->no_counters_why, sizeof result->no_counters_why, "%s", run.counters.why);
    enum kvad_status status = prepare(&run, err);
    for (size_t i = 0; i < options->weights.n && status == KVAD_OK && !result->is_void; i++) {
        status = run_weights(&run, (enum kvad_weight_type)options->weights.items[i], err);
        bench_ceilings_close(&run);
        kvad_model_release(&run.model);
    }
    clean_up(&run);
    return status;
}

void kvad_bench_result_deinit(struct kvad_bench_result *result) {
    for (size_t i = 0; result->cases && i < result->n_cases; i++)
        free(result->cases[i].samples);
    free(result->cases);
    free(result->models);
    *result = (struct kvad_bench_result){0};
}
