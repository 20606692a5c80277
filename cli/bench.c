/* kvad bench: what decoding, prefill and batches cost on this machine, beside its ceilings. */
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/session.h"
#include "cli/streams.h"
#include "lab/synthetic.h"

static const struct cli_choice sizes[] = {
    {"gpt2", 1}, {"gpt2-medium", 2}, {"gpt2-large", 3}, {"gpt2-xl", 4}, {"tiny", 5}, {0},
};

static const struct cli_option bench_options[] = {
    {.name = "synthetic",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(synthetic),
     .value = "SIZE",
     .choices = sizes,
     .no_variable = true,
     .help = "random weights of this size in place of MODEL: needs no file"},
    {.name = "contexts",
     .kind = CLI_NUMBERS,
     .offset = CLI_AT(contexts),
     .value = "LIST",
     .max = INT32_MAX,
     .known_as = "depth n-depth ctx context",
     .help = "decode one token after so many (16,128,512,1000, as far as the model reaches)"},
    {.name = "prefill",
     .kind = CLI_NUMBERS,
     .offset = CLI_AT(prefills),
     .value = "LIST",
     .min = 1,
     .max = INT32_MAX,
     .known_as = "n-prompt pp prompt",
     .help = "read prompts of these lengths (16,128,512); '' for none"},
    {.name = "batch",
     .kind = CLI_NUMBERS,
     .offset = CLI_AT(batches),
     .value = "LIST",
     .min = 1,
     .max = 4096,
     .known_as = "parallel npl batch-size sequences",
     .help = "decode so many sequences at once (1,2,4,8,16,32); '' for none"},
    CLI_CACHE_LIST_OPTION("policies to compare (all of them)"),
    {.name = "weights",
     .kind = CLI_CHOICES,
     .offset = CLI_AT(weight_types),
     .value = "LIST",
     .choices = cli_weights_choices,
     .known_as = "dtype type quant",
     .help = "types of weights to compare (f32, or as the file is packed)"},
    CLI_KV_LIST_OPTION(cli_kv_choices, "types of keys and values to compare (f32)"),
    {.name = "repeat",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(n_rounds),
     .value = "N",
     .min = 1,
     .max = 1000,
     .initial = "5",
     .known_as = "repetitions runs iterations",
     .help = "samples of each case; the median counts"},
    CLI_QUICK_OPTION("shorter lists and samples, for a first look in seconds"),
    {.name = "experiment",
     .kind = CLI_FLAG,
     .offset = CLI_AT(experiment),
     .no_variable = true,
     .known_as = "latency claims",
     .help = "how much faster the cache makes a text, why not more, with controls and verdicts"},
    {.name = "budget",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(budget),
     .value = "SECONDS",
     .max = 86400,
     .known_as = "time timeout seconds",
     .help = "of --experiment: what it should take, about (180; 15 with --quick)"},
    CLI_BLOCK_OPTION,
    {.name = "trace",
     .kind = CLI_FLAG,
     .offset = CLI_AT(trace),
     .known_as = "serving serve throughput",
     .help = "in place of single steps, requests of mixed lengths under one budget of bytes, on "
             "grow, static and paged: in flight, tokens per second, waste by cause; padded against "
             "ragged batches; a shared beginning; what a step costs beside its forward pass"},
    {.name = "trace-file",
     .kind = CLI_FILE,
     .offset = CLI_AT(trace_file),
     .value = "FILE",
     .no_variable = true,
     .help = "the trace: lines of {\"prompt_tokens\": N, \"output_tokens\": N, \"arrival\": "
             "STEP}"},
    {.name = "requests",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(n_requests),
     .value = "N",
     .min = 0,
     .max = 100000,
     .known_as = "num-prompts n-requests",
     .help = "requests of a made-up trace; 0: 40, or 12 with --quick"},
    CLI_SEED_OPTION("1", "of a made-up trace"),
    CLI_KV_MEMORY_OPTION("the budget of a trace, such as 512M; without it four contexts"),
    CLI_N_HEAD_OPTION,
};
static const struct cli_group bench_group = {"Bench", bench_options, CLI_COUNT_OF(bench_options)};

static const struct cli_group *const groups[] = {&bench_group, &cli_machine_group,
                                                 &cli_output_group, NULL};

enum kvad_status cli_bench_open_model(void *user, enum kvad_weight_type weights,
                                      struct kvad_threads *threads, struct kvad_model **out,
                                      struct kvad_error *err) {
    const struct cli_measuring *measuring = user;
    struct kvad_model_options options;
    cli_model_options(measuring->settings, NULL, &options);
    options.weights = weights;
    options.threads = threads;
    options.no_tokenizer = true;
    if (measuring->settings->synthetic)
        return kvad_synthetic_build(measuring->name, 1, &options, out, err);
    return kvad_model_load(measuring->name, &options, out, err);
}

/* What the user listed, or what stands for nothing: fitted to the model. */
static struct kvad_bench_list list_of(const struct cli_numbers *given,
                                      struct kvad_bench_list usual) {
    return given->is_given ? (struct kvad_bench_list){given->items, given->n, false} : usual;
}

#define USUAL(...)                                                                                 \
    ((struct kvad_bench_list){(const uint32_t[]){__VA_ARGS__},                                     \
                              sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), true})

static int measure(struct cli_measuring *measuring, struct kvad_bench_result *result) {
    const struct cli_settings *s = measuring->settings;
    struct kvad_bench_list contexts = s->quick ? USUAL(16, 128) : USUAL(16, 128, 512, 1000);
    struct kvad_bench_options options = {
        .open_model = cli_bench_open_model,
        .user = measuring,
        .weights = list_of(&s->weight_types, USUAL(KVAD_WEIGHTS_AUTO)),
        .kv = list_of(&s->kv_types, USUAL(KVAD_KV_F32)),
        .policies = list_of(&s->policies, USUAL(KVAD_CACHE_NONE, KVAD_CACHE_GROW, KVAD_CACHE_STATIC,
                                                KVAD_CACHE_PAGED)),
        .contexts = list_of(&s->contexts, contexts),
        .prefills = list_of(&s->prefills, s->quick ? USUAL(16, 64) : USUAL(16, 128, 512)),
        .batches = list_of(&s->batches, s->quick ? USUAL(1, 4) : USUAL(1, 2, 4, 8, 16, 32)),
        .n_rounds = (unsigned)s->n_rounds,
        .sample_seconds = s->quick ? 0.002 : 0.05,
        .ceiling_seconds = s->quick ? 0.01 : 0.05,
        .n_threads = (unsigned)s->n_threads,
        .cpu = cli_cpu_name(s->cpu),
        .block_tokens = (uint32_t)s->block_tokens,
        .report = cli_measuring_report,
        .engine_in_use = cli_engine_in_use};
    struct kvad_error err = {0};
    enum kvad_status status = kvad_bench_run(&options, result, &err);
    cli_progress_clear(&measuring->progress);
    return status == KVAD_OK ? CLI_EXIT_OK : cli_fail(&err);
}

static int print(const struct cli_measuring *measuring, const struct kvad_bench_result *result) {
    int status = CLI_EXIT_OK;
    if (measuring->settings->json)
        status = cli_bench_print_json(result, measuring->name);
    else if (!result->is_void)
        status = cli_bench_print_tables(result, measuring->name);
    if (!result->is_void) return status;
    cli_say("the run is void, its numbers mean nothing: %s", result->void_why);
    return CLI_EXIT_FAILURE;
}

/* Refuses what the mode asked for would ignore. */
static int check_mode(const struct cli_settings *s) {
    const struct cli_stray strays[] = {
        {!s->experiment, "budget", "", " needs --experiment"},
        {!s->trace, "trace-file requests seed kv-memory", "", " needs --trace"},
        {s->trace_file, "requests seed", "",
         " is for a made-up trace: --trace-file has requests of its own"},
        {s->synthetic, "n-head", "", " is for a MODEL: that of --synthetic has its own heads"},
        {s->trace, "contexts prefill batch cache", "--trace and ",
         " exclude each other: it runs its own requests on grow, static and paged"},
        {s->experiment, "prefill batch cache weights kv", "--experiment and ",
         " exclude each other: it measures every policy with the model's own weights and a "
         "float32 cache"},
    };
    if (s->experiment && s->trace)
        return cli_usage_error(&cli_bench, "--experiment and --trace exclude each other");
    return cli_refuse_strays(s, strays, CLI_COUNT_OF(strays));
}

static int run(const struct cli_settings *settings) {
    struct cli_measuring measuring = {.settings = settings, .progress = cli_progress_of(settings)};
    if (settings->synthetic && settings->arguments.n)
        return cli_usage_error(&cli_bench, "MODEL and --synthetic exclude each other");
    if (!settings->synthetic && !settings->arguments.n)
        return cli_usage_error(&cli_bench,
                               "MODEL is missing: kvad bench MODEL, or --synthetic gpt2");
    measuring.name = settings->synthetic ? kvad_synthetic_name((unsigned)settings->synthetic - 1)
                                         : settings->arguments.items[0];
    int status = check_mode(settings);
    if (status != CLI_EXIT_OK) return status;
    cli_catch_interrupt();
    if (settings->experiment) return cli_bench_run_experiment(&measuring);
    if (settings->trace) return cli_bench_run_trace(&measuring);
    struct kvad_bench_result result;
    status = measure(&measuring, &result);
    if (status == CLI_EXIT_OK) status = print(&measuring, &result);
    kvad_bench_result_deinit(&result);
    return status;
}

static const struct cli_example examples[] = {
    {"kvad bench --synthetic gpt2 --quick", "a first look, without any file"},
    {"kvad bench models/shakespeare-char", "every policy on a model of your own"},
    {"kvad bench models/shakespeare-char --experiment",
     "with and without a cache: how much faster, why, and what articles say"},
    {"kvad bench --synthetic gpt2 --weights f32,bf16,q8,q4 --cache paged --json",
     "what smaller weights buy, for a script"},
    {"kvad bench --synthetic gpt2 --trace --kv-memory 288M",
     "why paging: many requests under one budget of bytes"},
    {0},
};

const struct cli_command cli_bench = {
    .name = "bench",
    .summary = "time of decoding, prefill and batches beside the machine's ceilings",
    .synopsis = "MODEL|--synthetic SIZE [options]",
    .description =
        "Measures a step with its sampling: decoding at several contexts under every cache policy, "
        "prompts of several lengths, batches. Between the samples it measures what the machine can "
        "do at best with the same threads: bytes read per second over the weights themselves, "
        "multiply-adds per second. The tables say how much of that each step reaches, and where "
        "the rest of its time goes.\n\nEvery policy must give the same tokens and the same bits of "
        "logits; otherwise the run is void and the exit code 1. A busy machine gives numbers with "
        "a "
        "wide spread: stop other work first.\n\n--experiment compares decoding with and without a "
        "cache at "
        "contexts from 1 to the longest, and a whole text; sets operations and bytes beside the "
        "times; says where a cached step's time goes; checks that with controls whose outcome it "
        "predicts; and judges what articles claim. What does not fit the --budget is interpolated "
        "or left out, and the output says so.",
    .examples = examples,
    .groups = groups,
    .min_arguments = 0,
    .max_arguments = 1,
    .run = run,
};
