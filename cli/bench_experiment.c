/* kvad bench --experiment: decoding with and without a cache, explained and judged. */
#include <string.h>

#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/streams.h"

static int measure(struct cli_measuring *measuring, struct kvad_experiment_result *result) {
    const struct cli_settings *s = measuring->settings;
    struct kvad_experiment_options options = {.open_model = cli_bench_open_model,
                                              .user = measuring,
                                              .contexts = {s->contexts.items, s->contexts.n, false},
                                              .n_rounds = (unsigned)s->n_rounds,
                                              .n_threads = (unsigned)s->n_threads,
                                              .cpu = cli_cpu_name(s->cpu),
                                              .block_tokens = (uint32_t)s->block_tokens,
                                              .quick = s->quick,
                                              .budget_seconds = (double)s->budget,
                                              .report = cli_measuring_report,
                                              .engine_in_use = cli_engine_in_use};
    struct kvad_error err = {0};
    enum kvad_status status = kvad_experiment_run(&options, result, &err);
    cli_progress_clear(&measuring->progress);
    return status == KVAD_OK ? CLI_EXIT_OK : cli_fail(&err);
}

static int print_json(const struct kvad_experiment_result *result, const char *name) {
    return cli_json_print(kvad_experiment_json(result, cli_json_string(name, strlen(name))));
}

static int print(const struct cli_measuring *measuring,
                 const struct kvad_experiment_result *result) {
    int status = CLI_EXIT_OK;
    if (measuring->settings->json)
        status = print_json(result, measuring->name);
    else if (!result->is_void)
        status = cli_experiment_print_tables(result, measuring->name);
    if (!result->is_void) return status;
    cli_say("the run is void, its numbers mean nothing: %s", result->void_why);
    return CLI_EXIT_FAILURE;
}

int cli_bench_run_experiment(struct cli_measuring *measuring) {
    struct kvad_experiment_result result;
    int status = measure(measuring, &result);
    if (status == CLI_EXIT_OK) status = print(measuring, &result);
    kvad_experiment_result_deinit(&result);
    return status;
}
