/* What a shared beginning saves, and what a step costs beside its forward pass. */
#include <stdio.h>

#include "base/error.h"
#include "lab/trace_internal.h"
#include "sampling/philox.h"

/* ---- a shared beginning */

enum { N_REQUESTS = 16, MAX_ROUNDS = 64 };

/* The requests of one round, and when each had its first token. */
struct beginners {
    struct kvad_request *requests[N_REQUESTS];
    int32_t tokens[N_REQUESTS];
    double ms[N_REQUESTS];
};

/* The first n_common ids are those of everybody. */
static void fill_shared(const struct trace_run *run, size_t index, int32_t *ids) {
    const struct kvad_trace_prefix *prefix = &run->result->prefix;
    uint32_t n_ids = run->result->model.n_tokens;
    for (size_t t = 0; t < prefix->n_prompt; t++) {
        size_t whose = t < prefix->n_common ? 0 : index + 1;
        ids[t] = (int32_t)(kvad_uniform(2, whose, t) * n_ids);
    }
    /* No two of them go on alike by chance. */
    ids[prefix->n_common] = (int32_t)(index % n_ids);
}

static enum kvad_status submit_all(struct trace_run *run, struct kvad_engine *engine,
                                   struct beginners *all, struct kvad_error *err) {
    for (size_t i = 0; i < N_REQUESTS; i++) {
        fill_shared(run, i, run->prompt);
        struct kvad_request_options options =
            trace_request_options(run->prompt, run->result->prefix.n_prompt, 1);
        KVAD_TRY(kvad_request_submit(engine, &options, &all->requests[i], err));
    }
    return KVAD_OK;
}

static enum kvad_status wait_for_all(struct kvad_engine *engine, struct beginners *all,
                                     struct kvad_error *err) {
    uint64_t start = kvad_clock_ns();
    for (size_t n_active = N_REQUESTS; n_active > 0;) {
        KVAD_TRY(kvad_engine_step(engine, &n_active, err));
        struct kvad_event event;
        for (size_t i = 0; i < N_REQUESTS; i++)
            while (kvad_request_poll(all->requests[i], &event)) {
                if (event.token < 0) continue;
                all->tokens[i] = event.token;
                all->ms[i] = (double)(kvad_clock_ns() - start) * 1e-6;
            }
    }
    return KVAD_OK;
}

static enum kvad_status time_first_tokens(struct trace_run *run, bool shares, struct beginners *all,
                                          uint64_t *n_computed, struct kvad_error *err) {
    struct kvad_engine *engine = NULL;
    struct kvad_engine_options options = trace_engine_options(run, KVAD_CACHE_PAGED, N_REQUESTS);
    options.no_prefix_cache = !shares;
    *all = (struct beginners){0};
    KVAD_TRY(kvad_engine_open(run->options->model, &options, &engine, err));
    trace_engine_in_use(run, engine);
    enum kvad_status status = submit_all(run, engine, all, err);
    if (status == KVAD_OK) status = wait_for_all(engine, all, err);
    struct kvad_cache_stats stats;
    kvad_cache_get_stats(engine, &stats);
    *n_computed = stats.n_prompt_tokens - stats.n_hit_tokens;
    trace_engine_in_use(run, NULL);
    for (size_t i = 0; i < N_REQUESTS; i++)
        kvad_request_destroy(&all->requests[i]);
    kvad_engine_close(&engine);
    return status;
}

static double mean_of(const struct beginners *all) {
    double sum = 0;
    for (size_t i = 0; i < N_REQUESTS; i++)
        sum += all->ms[i];
    return sum / N_REQUESTS;
}

static double last_of(const struct beginners *all) {
    double last = 0;
    for (size_t i = 0; i < N_REQUESTS; i++)
        if (all->ms[i] > last) last = all->ms[i];
    return last;
}

static void compare(struct trace_run *run, const struct beginners *off,
                    const struct beginners *on) {
    for (size_t i = 0; i < N_REQUESTS; i++) {
        if (off->tokens[i] == on->tokens[i]) continue;
        run->result->is_void = true;
        snprintf(run->result->void_why, sizeof run->result->void_why,
                 "shared beginning, request %zu: token %d with the prefix cache, %d without", i,
                 (int)on->tokens[i], (int)off->tokens[i]);
        return;
    }
}

enum kvad_status trace_run_prefix(struct trace_run *run, struct kvad_error *err) {
    struct kvad_trace_prefix *out = &run->result->prefix;
    size_t n_ctx = run->result->model.n_ctx, n_common = kvad_min_size(512, n_ctx / 2);
    size_t n_rounds = kvad_min_size(run->options->n_rounds, MAX_ROUNDS);
    double mean[2][MAX_ROUNDS], last[2][MAX_ROUNDS];
    *out = (struct kvad_trace_prefix){.n_requests = N_REQUESTS,
                                      .n_common = n_common,
                                      .n_prompt = n_common + kvad_min_size(16, n_ctx / 4)};
    for (size_t round = 0; round < n_rounds && !run->result->is_void; round++) {
        struct beginners all[2];
        for (size_t on = 0; on <= 1; on++) {
            double done = (double)(2 * round + on) / (double)(2 * n_rounds);
            KVAD_TRY(trace_report(run, "a shared beginning", done, err));
            KVAD_TRY(time_first_tokens(run, on == 1, &all[on],
                                       on ? &out->tokens_on : &out->tokens_off, err));
            mean[on][round] = mean_of(&all[on]);
            last[on][round] = last_of(&all[on]);
        }
        compare(run, &all[0], &all[1]);
    }
    out->mean_off = kvad_stats_of(mean[0], n_rounds);
    out->mean_on = kvad_stats_of(mean[1], n_rounds);
    out->last_off = kvad_stats_of(last[0], n_rounds);
    out->last_on = kvad_stats_of(last[1], n_rounds);
    return KVAD_OK;
}

/* ---- a step beside its forward pass */

enum { N_PROMPT = 16, N_STEPS = 40, N_WARM = 4 };

static enum kvad_status submit_decoders(struct trace_run *run, struct kvad_engine *engine,
                                        struct kvad_request **requests, size_t n,
                                        struct kvad_error *err) {
    for (size_t i = 0; i < n; i++) {
        trace_fill_prompt(run, i, run->prompt, N_PROMPT);
        struct kvad_request_options options =
            trace_request_options(run->prompt, N_PROMPT, N_WARM + N_STEPS);
        KVAD_TRY(kvad_request_submit(engine, &options, &requests[i], err));
    }
    return KVAD_OK;
}

static enum kvad_status time_steps(struct trace_run *run, struct kvad_engine *engine,
                                   struct kvad_request **requests, struct kvad_trace_overhead *out,
                                   struct kvad_error *err) {
    double step_us[N_STEPS], forward_us[N_STEPS], sampling_us[N_STEPS], percent[N_STEPS];
    for (size_t i = 0; i < N_WARM + N_STEPS; i++) {
        struct kvad_event event;
        kvad_probe_clear(&run->probe);
        kvad_engine_set_probe(engine, &run->probe);
        kvad_probe_start(&run->probe);
        uint64_t start = kvad_clock_ns();
        KVAD_TRY(kvad_engine_step(engine, NULL, err));
        double us = (double)(kvad_clock_ns() - start) * 1e-3;
        for (size_t k = 0; k < out->n_sequences; k++)
            while (kvad_request_poll(requests[k], &event))
                continue;
        if (i < N_WARM) continue;
        double forward = (double)engine->forward_ns * 1e-3;
        step_us[i - N_WARM] = us;
        forward_us[i - N_WARM] = forward;
        sampling_us[i - N_WARM] = (double)run->probe.clocks[0].ns[KVAD_PART_SAMPLING] * 1e-3;
        percent[i - N_WARM] = 100 * (us - forward) / forward;
    }
    out->step_us = kvad_stats_of(step_us, N_STEPS).median;
    out->forward_us = kvad_stats_of(forward_us, N_STEPS).median;
    out->sampling_us = kvad_stats_of(sampling_us, N_STEPS).median;
    out->percent = kvad_stats_of(percent, N_STEPS).median;
    return KVAD_OK;
}

static enum kvad_status measure_overhead(struct trace_run *run, struct kvad_trace_overhead *out,
                                         struct kvad_error *err) {
    struct kvad_request *requests[N_REQUESTS] = {0};
    struct kvad_engine *engine = NULL;
    struct kvad_engine_options options =
        trace_engine_options(run, KVAD_CACHE_PAGED, (uint32_t)out->n_sequences);
    KVAD_TRY(kvad_engine_open(run->options->model, &options, &engine, err));
    trace_engine_in_use(run, engine);
    enum kvad_status status = submit_decoders(run, engine, requests, out->n_sequences, err);
    if (status == KVAD_OK) status = time_steps(run, engine, requests, out, err);
    trace_engine_in_use(run, NULL);
    kvad_engine_set_probe(engine, NULL);
    for (size_t i = 0; i < N_REQUESTS; i++)
        kvad_request_destroy(&requests[i]);
    kvad_engine_close(&engine);
    return status;
}

enum kvad_status trace_run_overheads(struct trace_run *run, struct kvad_error *err) {
    static const size_t numbers[KVAD_TRACE_OVERHEADS] = {1, 4, N_REQUESTS};
    for (size_t i = 0; i < KVAD_TRACE_OVERHEADS; i++) {
        KVAD_TRY(trace_report(run, "a step beside its forward pass",
                              (double)i / KVAD_TRACE_OVERHEADS, err));
        run->result->overheads[i].n_sequences = numbers[i];
        KVAD_TRY(measure_overhead(run, &run->result->overheads[i], err));
    }
    return KVAD_OK;
}
