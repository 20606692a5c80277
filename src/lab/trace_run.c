/* All parts of a trace in turn, and what they share. */
#include <stdio.h>

#include "base/error.h"
#include "lab/trace_internal.h"
#include "sampling/philox.h"

enum { CONTEXTS = 4, SHORTEST_CONTEXT = 64 };

enum kvad_status trace_report(const struct trace_run *run, const char *what, double done,
                              struct kvad_error *err) {
    const struct kvad_trace_options *o = run->options;
    if (!o->report || o->report(o->user, what, done)) return KVAD_OK;
    return kvad_fail(err, KVAD_ERR_CANCELLED, "interrupted");
}

void trace_engine_in_use(const struct trace_run *run, struct kvad_engine *engine) {
    if (run->options->engine_in_use) run->options->engine_in_use(run->options->user, engine);
}

struct kvad_engine_options trace_engine_options(const struct trace_run *run,
                                                enum kvad_cache_policy policy,
                                                uint32_t n_sequences) {
    struct kvad_engine_options options;
    kvad_engine_options_init(&options);
    options.threads = run->threads;
    options.cpu = run->options->cpu;
    options.block_tokens = run->options->block_tokens;
    options.cache = policy;
    options.k_type = options.v_type = run->options->kv;
    options.n_sequences = n_sequences;
    return options;
}

void trace_fill_prompt(const struct trace_run *run, size_t index, int32_t *ids, size_t n) {
    for (size_t t = 0; t < n; t++)
        ids[t] = (int32_t)(kvad_uniform(1, index, t) * run->result->model.n_tokens);
}

struct kvad_request_options trace_request_options(const int32_t *prompt, size_t n_prompt,
                                                  size_t n_output) {
    struct kvad_request_options options;
    kvad_request_options_init(&options);
    options.prompt = prompt;
    options.n_prompt = n_prompt;
    options.max_tokens = n_output;
    options.ignore_eos = true;
    return options;
}

void trace_check_token(struct trace_run *run, const char *what, size_t index, size_t at,
                       int32_t token) {
    int32_t *kept = &run->tokens[run->first[index] + at];
    if (*kept < 0) *kept = token;
    if (*kept == token || run->result->is_void) return;
    run->result->is_void = true;
    snprintf(run->result->void_why, sizeof run->result->void_why,
             "%s: request %zu, token %zu is %d, but %d elsewhere", what, index, at, (int)token,
             (int)*kept);
}

static enum kvad_status describe(struct trace_run *run, struct kvad_error *err) {
    const struct kvad_trace_options *o = run->options;
    struct kvad_trace_result *result = run->result;
    enum kvad_cpu_level level = kvad_cpu_level_best();
    if (o->cpu && (!kvad_cpu_level_from_name(o->cpu, &level) || !kvad_cpu_level_supported(level)))
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED, "this CPU cannot run level \"%s\"; best is %s",
                         o->cpu, kvad_cpu_level_name(kvad_cpu_level_best()));
    snprintf(result->cpu, sizeof result->cpu, "%s", kvad_cpu_level_name(level));
    kvad_machine_read(&result->machine);
    kvad_model_get_info(o->model, &result->model);
    if (result->model.n_ctx < SHORTEST_CONTEXT)
        return kvad_fail(err, KVAD_ERR_UNSUPPORTED,
                         "a trace needs a context of at least %d tokens, the model has %u",
                         SHORTEST_CONTEXT, result->model.n_ctx);
    result->block_tokens = o->block_tokens ? o->block_tokens : 16;
    result->token_bytes = kvad_kv_bytes_per_token(&result->model, o->kv, o->kv);
    uint64_t context =
        kvad_round_up(result->model.n_ctx, result->block_tokens) * result->token_bytes;
    result->budget = o->budget ? o->budget : CONTEXTS * context;
    result->n_requests = o->trace->n;
    for (size_t i = 0; i < o->trace->n; i++) {
        const struct kvad_trace_item *item = &o->trace->items[i];
        result->n_prompt_tokens += item->n_prompt;
        result->n_output_tokens += item->n_output;
        if (item->n_prompt + item->n_output > result->longest)
            result->longest = item->n_prompt + item->n_output;
    }
    return KVAD_OK;
}

static enum kvad_status prepare(struct trace_run *run, struct kvad_error *err) {
    struct kvad_trace_result *result = run->result;
    const struct kvad_trace *trace = run->options->trace;
    size_t n_tokens = (size_t)result->n_output_tokens;
    run->prompt = kvad_alloc_zero(&run->heap, result->model.n_ctx, sizeof *run->prompt);
    run->tokens = kvad_alloc_zero(&run->heap, n_tokens, sizeof *run->tokens);
    run->first = kvad_alloc_zero(&run->heap, trace->n, sizeof *run->first);
    if (!run->prompt || !run->tokens || !run->first)
        return kvad_fail_memory(err, "trace", n_tokens * sizeof *run->tokens);
    for (size_t i = 1; i < trace->n; i++)
        run->first[i] = run->first[i - 1] + trace->items[i - 1].n_output;
    for (size_t i = 0; i < n_tokens; i++)
        run->tokens[i] = -1;
    KVAD_TRY(kvad_threads_create(run->options->n_threads, NULL, &run->threads, err));
    result->n_threads = kvad_threads_count(run->threads);
    return kvad_probe_init(&run->probe, run->threads, &run->heap, err);
}

static enum kvad_status run_parts(struct trace_run *run, struct kvad_error *err) {
    static const enum kvad_cache_policy policies[KVAD_TRACE_POLICIES] = {
        KVAD_CACHE_GROW, KVAD_CACHE_STATIC, KVAD_CACHE_PAGED};
    const bool *is_void = &run->result->is_void;
    for (size_t i = 0; i < KVAD_TRACE_POLICIES && !*is_void; i++)
        KVAD_TRY(trace_run_policy(run, policies[i], &run->result->policies[i], err));
    if (!*is_void) KVAD_TRY(trace_run_padded(run, err));
    if (!*is_void) KVAD_TRY(trace_run_prefix(run, err));
    if (!*is_void) KVAD_TRY(trace_run_overheads(run, err));
    return KVAD_OK;
}

enum kvad_status kvad_trace_run(const struct kvad_trace_options *options,
                                struct kvad_trace_result *result, struct kvad_error *err) {
    struct trace_run run = {.options = options, .result = result};
    *result = (struct kvad_trace_result){0};
    kvad_heap_init(&run.heap, NULL);
    enum kvad_status status = describe(&run, err);
    if (status == KVAD_OK) status = prepare(&run, err);
    if (status == KVAD_OK) status = run_parts(&run, err);
    kvad_probe_deinit(&run.probe, &run.heap);
    kvad_threads_release(&run.threads);
    kvad_free(&run.heap, run.prompt, result->model.n_ctx * sizeof *run.prompt);
    kvad_free(&run.heap, run.tokens, (size_t)result->n_output_tokens * sizeof *run.tokens);
    kvad_free(&run.heap, run.first, options->trace->n * sizeof *run.first);
    return status;
}
