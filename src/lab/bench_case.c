/* Samples of one case beside the ceilings, and what follows from them. */
#include <stdio.h>
#include <stdlib.h>

#include "lab/bench_internal.h"

#include "base/error.h"

_Static_assert((int)KVAD_BENCH_PARTS == (int)KVAD_PART_COUNT, "a place for each part");

/* Longest sample in steps: more would only wait for a slow clock. */
enum { MAX_STEPS = 1000 };

/* Samples with clocks; a long one averages over disturbances by itself, and one is enough. */
enum { PARTS_SAMPLES = 5, LONG_SAMPLE_NS = 200000000 };

enum kvad_status bench_ceilings_open(struct bench_run *run, enum kvad_cpu_level level,
                                     struct kvad_error *err) {
    size_t bytes = run->options->ceiling_bytes;
    const void *memory = run->model->area;
    if (bytes > 0) {
        memory = run->ceiling_memory = kvad_alloc_zero(&run->heap, bytes, 1);
        if (!memory) return kvad_fail_memory(err, "a read ceiling", bytes);
    } else {
        bytes = run->model->area_bytes;
    }
    run->model_result->ceiling_bytes = bytes;
    kvad_ceiling_init(&run->ceiling, level, run->threads, memory, bytes,
                      run->options->ceiling_seconds);
    return KVAD_OK;
}

void bench_ceilings_close(struct bench_run *run) {
    kvad_free(&run->heap, run->ceiling_memory, run->options->ceiling_bytes);
    run->ceiling_memory = NULL;
}

static double *new_numbers(struct bench_run *run) {
    return kvad_alloc_zero(&run->heap, run->options->n_rounds, sizeof(double));
}

enum kvad_status bench_case_open(struct bench_run *run, struct bench_case_run *out,
                                 const struct kvad_bench_case *what, struct bench_rig *rig,
                                 struct bench_step step, struct bench_answer *expected,
                                 struct kvad_error *err) {
    struct kvad_bench_case *result = &run->result->cases[run->result->n_cases++];
    *result = *what;
    *out =
        (struct bench_case_run){.result = result, .rig = rig, .step = step, .expected = expected};
    result->samples = calloc(run->options->n_rounds, sizeof *result->samples);
    out->read = new_numbers(run);
    out->fma = new_numbers(run);
    out->dot = new_numbers(run);
    out->percent = new_numbers(run);
    if (result->samples && out->read && out->fma && out->dot && out->percent) return KVAD_OK;
    return kvad_fail_memory(err, "samples", run->options->n_rounds * sizeof(double));
}

void bench_case_close(struct bench_run *run, struct bench_case_run *c) {
    size_t bytes = run->options->n_rounds * sizeof(double);
    kvad_free(&run->heap, c->read, bytes);
    kvad_free(&run->heap, c->fma, bytes);
    kvad_free(&run->heap, c->dot, bytes);
    kvad_free(&run->heap, c->percent, bytes);
    *c = (struct bench_case_run){0};
}

static void describe(const struct kvad_bench_case *c, char *text, size_t size) {
    static const char *const kinds[] = {"decode", "prefill", "batch"};
    const char *weights = kvad_weight_type_name(c->weights);
    if (c->kind == KVAD_BENCH_PREFILL)
        snprintf(text, size, "%s %s, %u tokens", weights, kinds[c->kind], c->n_tokens);
    else if (c->kind == KVAD_BENCH_BATCH)
        snprintf(text, size, "%s %s, %u sequences", weights, kinds[c->kind], c->n_sequences);
    else
        snprintf(text, size, "%s %s, context %u, cache %s", weights, kinds[c->kind], c->context,
                 kvad_cache_policy_name(c->policy));
}

/* Say what is being done; false: stop. */
static enum kvad_status report(struct bench_run *run, const struct kvad_bench_case *c,
                               struct kvad_error *err) {
    char what[96];
    const struct kvad_bench_options *o = run->options;
    describe(c, what, sizeof what);
    double done = (double)run->n_done++ / (double)run->n_units;
    if (!o->report || o->report(o->user, what, done)) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_CANCELLED, "interrupted");
}

/* All steps of a sample into *ns; the answer of each must be the expected one. */
static enum kvad_status take_steps(struct bench_run *run, struct bench_case_run *c, size_t n_steps,
                                   const struct kvad_probe *probe, struct bench_answer *expected,
                                   uint64_t *ns, struct kvad_error *err) {
    if (run->options->engine_in_use)
        run->options->engine_in_use(run->options->user, c->rig->engine);
    for (size_t i = 0; i < n_steps; i++)
        KVAD_TRY(bench_rig_step(c->rig, &c->step, probe, ns, err));
    struct bench_answer wanted = *expected, got = bench_rig_answer(c->rig);
    if (bench_answer_agrees(expected, got)) return KVAD_OK;
    char what[96];
    describe(c->result, what, sizeof what);
    run->result->is_void = true;
    snprintf(run->result->void_why, sizeof run->result->void_why,
             wanted.token == got.token ? "%s: token %d as elsewhere, but other bits of logits"
                                       : "%s: token %d, but %d on another path or at another time",
             what, (int)got.token, (int)wanted.token);
    return KVAD_OK;
}

/* Bring the rig to the case's context; another case may have left it elsewhere. */
static enum kvad_status return_to(struct bench_run *run, struct bench_case_run *c,
                                  struct kvad_error *err) {
    if (kvad_sequence_length(c->rig->sequences[0]) == c->step.position) return KVAD_OK;
    KVAD_TRY(bench_rig_fill(c->rig, &c->step, err));
    uint64_t ignored = 0;
    return take_steps(run, c, 1, NULL, c->expected, &ignored, err);
}

enum kvad_status bench_case_start(struct bench_run *run, struct bench_case_run *c,
                                  struct kvad_error *err) {
    KVAD_TRY(report(run, c->result, err));
    KVAD_TRY(bench_rig_fill(c->rig, &c->step, err));
    uint64_t first = 0, second = 0;
    KVAD_TRY(take_steps(run, c, 1, NULL, c->expected, &first, err));
    if (run->result->is_void) return KVAD_OK;
    KVAD_TRY(take_steps(run, c, 1, NULL, c->expected, &second, err));
    double seconds = (double)(second > 0 ? second : 1) * 1e-9;
    double n = run->options->sample_seconds / seconds;
    c->result->n_steps = n < 1 ? 1 : n > MAX_STEPS ? MAX_STEPS : (size_t)n;
    c->result->token = c->expected->token;
    return KVAD_OK;
}

static double keep(double *all, size_t *n, size_t max, double value) {
    if (*n < max) all[(*n)++] = value;
    return value;
}

static void measure_ceilings(struct bench_run *run, struct bench_case_run *c, unsigned round) {
    bool is_quantised =
        run->model->weights == KVAD_WEIGHTS_Q8 || run->model->weights == KVAD_WEIGHTS_Q4;
    c->read[round] =
        keep(run->read, &run->n_read, run->max_rates, kvad_ceiling_read(&run->ceiling));
    c->fma[round] = keep(run->fma, &run->n_fma, run->max_rates, kvad_ceiling_fma(&run->ceiling));
    if (is_quantised)
        c->dot[round] =
            keep(run->dot, &run->n_dot, run->max_rates, kvad_ceiling_dot(&run->ceiling));
}

enum kvad_status bench_case_round(struct bench_run *run, struct bench_case_run *c, unsigned round,
                                  struct kvad_error *err) {
    KVAD_TRY(report(run, c->result, err));
    KVAD_TRY(return_to(run, c, err));
    measure_ceilings(run, c, round);
    uint64_t ns = 0;
    KVAD_TRY(take_steps(run, c, c->result->n_steps, NULL, c->expected, &ns, err));
    c->result->samples[round] = (double)ns * 1e-6 / (double)c->result->n_steps;
    return KVAD_OK;
}

/* What the clocks say after a sample that took `ns`. */
static void keep_parts(const struct bench_run *run, struct kvad_bench_case *result, uint64_t ns) {
    double n_steps = (double)result->n_steps;
    result->parts_wall_ms = (double)ns * 1e-6 / n_steps;
    double named = 0, to_ms = 1e-6 / n_steps / run->probe.n_workers;
    for (enum kvad_part part = 0; part < KVAD_PART_COUNT; part++) {
        bool is_work = part != KVAD_PART_WAIT && part != KVAD_PART_OTHER;
        double ms = (double)kvad_probe_ns(&run->probe, part) * to_ms;
        result->parts[part] = (struct kvad_bench_part){kvad_part_name(part), ms, is_work};
        if (is_work) named += ms;
    }
    result->named_percent = 100 * named / result->parts_wall_ms;
}

static void keep_counters(struct kvad_bench_case *result, const double before[KVAD_COUNTERS],
                          const double after[KVAD_COUNTERS]) {
    for (unsigned i = 0; i < KVAD_COUNTERS; i++)
        result->counters[i] =
            before[i] < 0 || after[i] < 0 ? -1 : (after[i] - before[i]) / (double)result->n_steps;
}

/* Where the time of a step goes, and the CPU's events, in samples of their own, of which the
 * fastest is kept: what disturbs one of two workers makes the other wait. */
static enum kvad_status measure_parts(struct bench_run *run, struct bench_case_run *c,
                                      struct kvad_error *err) {
    struct bench_answer answer = {0};
    double before[KVAD_COUNTERS], after[KVAD_COUNTERS];
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < PARTS_SAMPLES && (i == 0 || best < LONG_SAMPLE_NS); i++) {
        uint64_t ns = 0;
        kvad_probe_clear(&run->probe);
        kvad_counters_read(&run->counters, before);
        KVAD_TRY(take_steps(run, c, c->result->n_steps, &run->probe, &answer, &ns, err));
        kvad_counters_read(&run->counters, after);
        if (ns >= best) continue;
        best = ns;
        keep_parts(run, c->result, ns);
        keep_counters(c->result, before, after);
    }
    return KVAD_OK;
}

static struct kvad_work work_of(const struct bench_run *run, const struct bench_case_run *c) {
    const struct kvad_engine *engine = c->rig->engine;
    struct kvad_engine_info info;
    kvad_engine_get_info(engine, &info);
    struct kvad_work_step step = {.n_sequences = c->step.n_sequences,
                                  .position = c->step.position,
                                  .n_rows = c->step.n_tokens,
                                  .n_logits = 1,
                                  .n_batch_rows = engine->n_batch_tokens,
                                  .kv_bytes_per_token = (size_t)info.kv_bytes_per_token};
    return kvad_work_of(run->model, &step);
}

/* Of each round: the time that its ceilings allow, as a percentage of the time taken. */
static void compare(const struct bench_run *run, struct bench_case_run *c,
                    const struct kvad_work *work) {
    struct kvad_bench_case *result = c->result;
    unsigned n = run->options->n_rounds;
    double bytes = work->weight_bytes + work->kv_bytes;
    for (unsigned i = 0; i < n; i++)
        c->percent[i] = 100 * (bytes / c->read[i]) / (result->samples[i] * 1e-3);
    result->percent_of_read = kvad_stats_of(c->percent, n);
    for (unsigned i = 0; i < n; i++) {
        double linear_rate = c->dot[i] > 0 ? c->dot[i] : c->fma[i];
        double seconds = work->linear_flops / linear_rate + work->attention_flops / c->fma[i];
        c->percent[i] = 100 * seconds / (result->samples[i] * 1e-3);
    }
    result->percent_of_compute = kvad_stats_of(c->percent, n);
    double by_read = result->percent_of_read.median, by_compute = result->percent_of_compute.median;
    result->is_compute_bound = by_compute > by_read;
    result->percent_of_ceiling = by_compute > by_read ? by_compute : by_read;
}

/* Sorts what the rounds measured: after everything that needs a round's numbers together. */
static void summarise(const struct bench_run *run, struct bench_case_run *c) {
    struct kvad_bench_case *result = c->result;
    unsigned n = run->options->n_rounds;
    result->read_rate = kvad_stats_of(c->read, n).median;
    result->fma_rate = kvad_stats_of(c->fma, n).median;
    result->dot_rate = kvad_stats_of(c->dot, n).median;
    result->ms = kvad_stats_of(result->samples, n);
}

enum kvad_status bench_case_finish(struct bench_run *run, struct bench_case_run *c,
                                   struct kvad_error *err) {
    struct kvad_bench_case *result = c->result;
    KVAD_TRY(report(run, result, err));
    KVAD_TRY(return_to(run, c, err));
    KVAD_TRY(measure_parts(run, c, err));
    struct kvad_work work = work_of(run, c);
    result->bytes = work.weight_bytes + work.kv_bytes;
    result->kv_bytes = work.kv_bytes;
    result->flops = work.linear_flops + work.attention_flops;
    result->attention_flops = work.attention_flops;
    compare(run, c, &work);
    summarise(run, c);
    return KVAD_OK;
}
