/* kvad memory: where the bytes of the cache and of everything beside it are, measured on a live
 * run; or what a cache of any model takes, computed. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "cli/memory_report.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/streams.h"

static const struct cli_choice types[] = {
    {"f32", KVAD_MEMORY_F32},   {"f16", KVAD_MEMORY_F16},
    {"bf16", KVAD_MEMORY_BF16}, {"q8", KVAD_MEMORY_Q8},
    {"q4", KVAD_MEMORY_Q4},     {"q8_0", KVAD_MEMORY_Q8_0},
    {"q4_0", KVAD_MEMORY_Q4_0}, {0},
};

static const struct cli_option memory_options[] = {
    {.name = "config",
     .kind = CLI_FILE,
     .offset = CLI_AT(config),
     .value = "FILE|NAME",
     .no_variable = true,
     .known_as = "architecture arch",
     .help = "compute instead of measuring, for a config.json, a model folder, or a known model "
             "(gpt2, llama-7b, llama-2-70b, mistral-7b, deepseek-v2, ...; '?' lists them)"},
    CLI_CTX_OPTION("tokens of a text (the model's context)"),
    {.name = "batch",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(n_texts),
     .value = "N",
     .min = 1,
     .max = INT32_MAX,
     .known_as = "parallel batch-size sequences",
     .help = "texts at once, with --config (1)"},
    CLI_KV_LIST_OPTION(
        types, "types of keys and values (f32): several to measure, one to compute; q4 and the "
               "groups of 32 of ggml (q8_0, q4_0) are for --config alone"),
    CLI_CACHE_LIST_OPTION("policies to measure (all of them)"),
    CLI_BLOCK_OPTION,
};
static const struct cli_group memory_group = {"Memory", memory_options,
                                              CLI_COUNT_OF(memory_options)};

static const struct cli_group *const groups[] = {&memory_group, &cli_model_group,
                                                 &cli_machine_group, &cli_output_group, NULL};

/* ---------------------------------------------------------------- computed */

static int list_names(void) {
    for (unsigned i = 0; kvad_memory_shape_name(i); i++)
        puts(kvad_memory_shape_name(i));
    return cli_flush_output();
}

static int compute(const struct cli_settings *settings) {
    struct kvad_error err = {0};
    struct kvad_memory_answer answer;
    struct kvad_memory_question question = {.n_tokens = (uint32_t)settings->n_ctx,
                                            .n_texts = (uint32_t)settings->n_texts,
                                            .block_tokens = (uint32_t)settings->block_tokens};
    char shown[CLI_VARIABLE_SIZE];
    if (strcmp(settings->config, "?") == 0) return list_names();
    if (settings->kv_types.n > 1)
        return cli_usage_error(&cli_memory, "%s takes one type with --config",
                               cli_option_shown(settings, "kv", shown));
    if (settings->kv_types.n) question.type = (enum kvad_memory_type)settings->kv_types.items[0];
    if (kvad_memory_shape_open(settings->config, &question.shape, &err) != KVAD_OK ||
        kvad_memory_compute(&question, &answer, &err) != KVAD_OK)
        return cli_fail(&err);
    return settings->json ? cli_json_print(kvad_memory_answer_json(&answer))
                          : cli_memory_print_answer(&answer);
}

/* ---------------------------------------------------------------- measured */

static enum kvad_status open_model(void *user, const struct kvad_allocator *allocator,
                                   struct kvad_model **out, struct kvad_error *err) {
    const struct cli_measuring *measuring = user;
    struct kvad_model_options options;
    cli_model_options(measuring->settings, NULL, &options);
    options.allocator = *allocator;
    return kvad_model_load(measuring->name, &options, out, err);
}

/* The types that the cache itself has; false: one of them is for computing alone. */
static bool fill_types(const struct cli_numbers *given, uint32_t out[KVAD_KV_TYPE_COUNT],
                       size_t *n) {
    *n = 0;
    for (size_t i = 0; i < given->n; i++) {
        uint32_t kv = 0;
        while (kv < KVAD_KV_TYPE_COUNT &&
               (uint32_t)kvad_memory_type_of((enum kvad_kv_type)kv) != given->items[i])
            kv++;
        if (kv == KVAD_KV_TYPE_COUNT) return false;
        out[(*n)++] = kv;
    }
    if (*n == 0) out[(*n)++] = KVAD_KV_F32;
    return true;
}

static int print(const struct cli_settings *settings, const struct kvad_memory_result *result) {
    if (!settings->json) return cli_memory_print_result(result, settings->arguments.items[0]);
    const char *name = settings->arguments.items[0];
    json_t *json = kvad_memory_result_json(result);
    if (json && json_object_set_new(json, "model", cli_json_string(name, strlen(name))) != 0) {
        json_decref(json);
        json = NULL;
    }
    int status = cli_json_print(json);
    if (status != CLI_EXIT_OK || kvad_memory_result_is_exact(result)) return status;
    return CLI_EXIT_FAILURE;
}

static int measure(const struct cli_settings *settings) {
    static const uint32_t all[] = {KVAD_CACHE_NONE, KVAD_CACHE_GROW, KVAD_CACHE_STATIC,
                                   KVAD_CACHE_PAGED};
    const struct cli_numbers *policies = &settings->policies;
    struct cli_measuring measuring = {.settings = settings,
                                      .name = settings->arguments.items[0],
                                      .progress = cli_progress_of(settings)};
    uint32_t kv[KVAD_KV_TYPE_COUNT];
    char shown[CLI_VARIABLE_SIZE];
    struct kvad_memory_options options = {
        .open_model = open_model,
        .user = &measuring,
        .policies = policies->is_given ? (struct kvad_memory_list){policies->items, policies->n}
                                       : (struct kvad_memory_list){all, CLI_COUNT_OF(all)},
        .n_ctx = (uint32_t)settings->n_ctx,
        .block_tokens = (uint32_t)settings->block_tokens,
        .n_threads = (unsigned)settings->n_threads,
        .cpu = cli_cpu_name(settings->cpu),
        .report = cli_measuring_report,
        .engine_in_use = cli_engine_in_use};
    if (!fill_types(&settings->kv_types, kv, &options.kv.n))
        return cli_usage_error(&cli_memory,
                               "%s: q4, q8_0 and q4_0 can only be computed, with --config; the "
                               "cache has f32, f16, bf16 and q8",
                               cli_option_shown(settings, "kv", shown));
    options.kv.items = kv;
    struct kvad_memory_result result;
    struct kvad_error err = {0};
    cli_catch_interrupt();
    enum kvad_status status = kvad_memory_measure(&options, &result, &err);
    cli_progress_clear(&measuring.progress);
    int code = status == KVAD_OK ? print(settings, &result) : cli_fail(&err);
    if (status == KVAD_OK && !kvad_memory_result_is_exact(&result))
        cli_say("what was requested is not what the formula says: see the column diff");
    kvad_memory_result_deinit(&result);
    return code;
}

/* Refuses what measuring, computing or listing would ignore. */
static int check_mode(const struct cli_settings *s) {
    const struct cli_stray strays[] = {
        {s->config, "cache", "", " is for measuring: --config compares them all"},
        {s->config, "tokenizer activation weights n-head no-map threads cpu", "",
         " is for measuring: --config opens no model"},
        {s->config && strcmp(s->config, "?") == 0, "ctx batch kv block json", "",
         " has no effect on --config ?, which lists names"},
        {!s->config, "batch", "", " is for --config: one text is measured"},
    };
    return cli_refuse_strays(s, strays, CLI_COUNT_OF(strays));
}

static int run(const struct cli_settings *settings) {
    if (settings->config && settings->arguments.n)
        return cli_usage_error(&cli_memory, "MODEL is measured, --config is computed: give one");
    if (!settings->config && !settings->arguments.n)
        return cli_usage_error(&cli_memory,
                               "MODEL is missing: kvad memory MODEL, or --config gpt2");
    int status = check_mode(settings);
    if (status != CLI_EXIT_OK) return status;
    return settings->config ? compute(settings) : measure(settings);
}

static const struct cli_example examples[] = {
    {"kvad memory models/shakespeare-char", "measure the model that ships"},
    {"kvad memory gpt2 --kv f32,q8 --cache paged", "one policy, two types of cache"},
    {"kvad memory --config llama-7b --kv f16", "512 KiB a token, and the roads to fewer"},
    {"kvad memory --config config.json --ctx 32768 --batch 16 --json", "any model, for a script"},
    {0},
};

const struct cli_command cli_memory = {
    .name = "memory",
    .summary = "bytes of the cache and beside it: measured, or by formula",
    .synopsis = "MODEL|--config FILE [options]",
    .description =
        "Measured: a text grows over the context under every cache policy, and at 16 checkpoints "
        "the bytes of the cache by formula stand beside those that the allocator was asked for "
        "and those that are resident. First the naive way, nothing warm, with the offset that "
        "it meets itemised by owner; then warmed up, with the live buffers that are not the cache "
        "subtracted: the difference is 0 at every checkpoint, or the exit code is 1. All of the "
        "process's resident memory is explained by owner.\n\nComputed: with --config, the bytes of "
        "a token and of whole texts, and what every known road to fewer bytes would make of them: "
        "fewer kv heads, a latent, smaller elements, windows, paging.",
    .examples = examples,
    .groups = groups,
    .min_arguments = 0,
    .max_arguments = 1,
    .run = run,
};
