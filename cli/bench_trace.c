/* kvad bench --trace: requests of mixed lengths under one budget. */
#include <stdio.h>

#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/streams.h"
#include "lab/trace_json.h"

/* ---- tables */

static void print_head(const struct kvad_trace_result *r, const char *name) {
    char budget[CLI_SIZE_TEXT];
    cli_format_size(r->budget, budget);
    printf("%s: %zu requests, %llu tokens of prompts, %llu of outputs, the longest text %u\n", name,
           r->n_requests, (unsigned long long)r->n_prompt_tokens,
           (unsigned long long)r->n_output_tokens, r->longest);
    printf("cache memory %s (%.1f contexts of %u), blocks of %u tokens\n", budget,
           (double)r->budget / (double)r->token_bytes / r->model.n_ctx, r->model.n_ctx,
           r->block_tokens);
    printf("kvad %s, %u threads, %s kernels\n", kvad_version(), r->n_threads, r->cpu);
}

static void print_policies(const struct kvad_trace_result *r) {
    printf("\nThe same requests under the same bytes\n"
           "cache   in flight max  steps  tokens/s  first ms  waiting  refused  preempted\n");
    for (size_t i = 0; i < KVAD_TRACE_POLICIES; i++) {
        const struct kvad_trace_policy *p = &r->policies[i];
        printf("%-7s %9.1f %3zu %6zu %9.1f %9.0f %8.1f %8zu %10zu\n",
               kvad_cache_policy_name(p->policy), p->mean_in_flight, p->max_in_flight, p->n_steps,
               (double)p->n_output_tokens / p->seconds, p->first_token_ms, p->mean_waiting,
               p->n_refused, p->n_preemptions);
    }
    printf(
        "in flight, waiting: requests, mean over the steps (max: at once); first ms: from arrival\n"
        "to the first token, mean\n");
}

static void print_fairness(const struct kvad_trace_result *r) {
    printf("\nWhat single requests get\n"
           "cache   longest wait, steps  fairness\n");
    for (size_t i = 0; i < KVAD_TRACE_POLICIES; i++) {
        const struct kvad_trace_policy *p = &r->policies[i];
        printf("%-7s %19zu %9.3f\n", kvad_cache_policy_name(p->policy), p->longest_wait,
               p->fairness);
    }
    printf(
        "longest wait: from arrival to the first token; fairness: Jain's index of the tokens per\n"
        "step that requests get from then on, 1 where all get the same\n");
}

static void print_waste(const struct kvad_trace_result *r) {
    printf("\nWhere the bytes are while requests wait, %% of the budget\n"
           "cache     live   later   never  remainder  copies    free | waste %% of held\n");
    for (size_t i = 0; i < KVAD_TRACE_POLICIES; i++) {
        const struct kvad_trace_policy *p = &r->policies[i];
        const double *percent = p->percent;
        printf("%-7s %6.1f %7.1f %7.1f %10.1f %7.1f %7.1f | %15.1f\n",
               kvad_cache_policy_name(p->policy), percent[KVAD_TRACE_LIVE],
               percent[KVAD_TRACE_LATER], percent[KVAD_TRACE_NEVER], percent[KVAD_TRACE_REMAINDER],
               percent[KVAD_TRACE_COPIES], percent[KVAD_TRACE_FREE], p->waste_percent);
    }
    printf("later, never: reserved for tokens that come, or that never do; remainder: of last\n"
           "blocks; copies: kept free to copy the largest text once more. vLLM's paper has 62 to\n"
           "80 %% of waste where whole contexts are reserved, and below 4 %% with pages.\n");
    const struct kvad_trace_policy *grow = &r->policies[0];
    char moved[CLI_SIZE_TEXT], twice[CLI_SIZE_TEXT];
    cli_format_size(grow->copied_bytes, moved);
    cli_format_size(grow->twice_peak, twice);
    printf("grow moved %s in %llu copies and held up to %s twice\n", moved,
           (unsigned long long)grow->copies, twice);
}

static double wasted(uint64_t padded, uint64_t ragged) {
    return padded > 0 ? 100 - 100 * (double)ragged / (double)padded : 0;
}

static void print_padded(const struct kvad_trace_padded *p) {
    printf("\nBatches of %zu, padded to the longest or ragged\n"
           "           rows         GFLOP    seconds (of the first %zu batches)\n"
           "padded %8llu %13.1f %10.2f\n"
           "ragged %8llu %13.1f %10.2f\n"
           "%.1f %% of the padded rows are padding; of the measured ones %.1f %%, for %.2f times\n"
           "the time\n",
           p->n_sequences, p->n_measured, (unsigned long long)p->padded_rows,
           p->padded_flops * 1e-9, p->padded_seconds, (unsigned long long)p->ragged_rows,
           p->ragged_flops * 1e-9, p->ragged_seconds, wasted(p->padded_rows, p->ragged_rows),
           wasted(p->measured_padded, p->measured_ragged), p->padded_seconds / p->ragged_seconds);
}

static void print_prefix(const struct kvad_trace_prefix *p) {
    printf("\n%zu requests at once, %zu of %zu prompt tokens in common (%zu rounds)\n"
           "prefix cache  tokens computed  first token ms: mean    last\n"
           "off           %15llu %21.1f %7.1f\n"
           "on            %15llu %21.1f %7.1f\n"
           "%.1f times fewer tokens; the last first token comes %.1f times sooner\n",
           p->n_requests, p->n_common, p->n_prompt, p->mean_on.n, (unsigned long long)p->tokens_off,
           p->mean_off.median, p->last_off.median, (unsigned long long)p->tokens_on,
           p->mean_on.median, p->last_on.median, (double)p->tokens_off / (double)p->tokens_on,
           p->last_off.median / p->last_on.median);
}

static void print_overheads(const struct kvad_trace_result *r) {
    printf("\nA step beside its forward pass, microseconds\n"
           "sequences     step  forward  sampling  rest  overhead %%\n");
    for (size_t i = 0; i < KVAD_TRACE_OVERHEADS; i++) {
        const struct kvad_trace_overhead *o = &r->overheads[i];
        printf("%9zu %8.1f %8.1f %9.1f %5.1f %11.2f\n", o->n_sequences, o->step_us, o->forward_us,
               o->sampling_us, o->step_us - o->forward_us - o->sampling_us, o->percent);
    }
}

static int print(const struct cli_settings *settings, const struct kvad_trace_result *r,
                 const char *name) {
    int status = CLI_EXIT_OK;
    if (settings->json) {
        status = cli_json_print(kvad_trace_json(r, name));
    } else if (!r->is_void) {
        print_head(r, name);
        print_policies(r);
        print_fairness(r);
        print_waste(r);
        print_padded(&r->padded);
        print_prefix(&r->prefix);
        print_overheads(r);
    }
    if (!r->is_void) return status;
    cli_say("the run is void, its numbers mean nothing: %s", r->void_why);
    return CLI_EXIT_FAILURE;
}

/* ---- running */

static int open_trace(const struct cli_settings *settings, const struct kvad_model *model,
                      struct kvad_trace *trace) {
    struct kvad_model_info info;
    struct kvad_error err = {0};
    kvad_model_get_info(model, &info);
    if (!settings->trace_file) {
        size_t n = settings->n_requests ? (size_t)settings->n_requests : settings->quick ? 12 : 40;
        if (kvad_trace_make(trace, n, settings->seed, info.n_ctx, &err) != KVAD_OK)
            return cli_fail(&err);
        return CLI_EXIT_OK;
    }
    struct cli_text text = {0};
    int status = cli_read_file(settings->trace_file, &text);
    if (status == CLI_EXIT_OK && kvad_trace_read(trace, text.bytes, text.size, settings->trace_file,
                                                 info.n_ctx, &err) != KVAD_OK)
        status = cli_fail(&err);
    cli_text_deinit(&text);
    return status;
}

static int run_on(struct cli_measuring *measuring, struct kvad_model *model) {
    const struct cli_settings *s = measuring->settings;
    struct kvad_trace trace = {0};
    struct kvad_trace_result result;
    struct kvad_error err = {0};
    int status = open_trace(s, model, &trace);
    if (status != CLI_EXIT_OK) return status;
    struct kvad_trace_options options = {
        .model = model,
        .trace = &trace,
        .budget = s->kv_memory,
        .n_threads = (unsigned)s->n_threads,
        .cpu = cli_cpu_name(s->cpu),
        .block_tokens = (uint32_t)s->block_tokens,
        .kv = s->kv_types.n ? (enum kvad_kv_type)s->kv_types.items[0] : KVAD_KV_F32,
        .n_rounds = (unsigned)s->n_rounds,
        .n_batches = s->quick ? 1 : 2,
        .report = cli_measuring_report,
        .engine_in_use = cli_engine_in_use,
        .user = measuring};
    enum kvad_status measured = kvad_trace_run(&options, &result, &err);
    cli_progress_clear(&measuring->progress);
    kvad_trace_deinit(&trace);
    return measured == KVAD_OK ? print(s, &result, measuring->name) : cli_fail(&err);
}

int cli_bench_run_trace(struct cli_measuring *measuring) {
    const struct cli_settings *s = measuring->settings;
    const char *list = s->weight_types.n > 1 ? "weights" : s->kv_types.n > 1 ? "kv" : NULL;
    char shown[CLI_VARIABLE_SIZE];
    if (list)
        return cli_usage_error(&cli_bench,
                               "--trace and this %s exclude each other: it runs its own requests "
                               "in one type of weights and of cache",
                               cli_option_shown(s, list, shown));
    struct kvad_model *model = NULL;
    struct kvad_error err = {0};
    enum kvad_weight_type weights = KVAD_WEIGHTS_AUTO;
    if (s->weight_types.n > 0) weights = (enum kvad_weight_type)s->weight_types.items[0];
    if (cli_bench_open_model(measuring, weights, NULL, &model, &err) != KVAD_OK)
        return cli_fail(&err);
    int status = run_on(measuring, model);
    kvad_model_release(&model);
    return status;
}
