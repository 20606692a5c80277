#include "cli/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/groups.h"
#include "cli/streams.h"
#include "lab/machine.h"

int cli_exit_code(enum kvad_status status) {
    switch (status) {
    case KVAD_OK: return CLI_EXIT_OK;
    case KVAD_ERR_ARGUMENT: return CLI_EXIT_USAGE;
    case KVAD_ERR_IO:
    case KVAD_ERR_NOT_FOUND:
    case KVAD_ERR_FORMAT: return CLI_EXIT_MODEL;
    case KVAD_ERR_UNSUPPORTED: return CLI_EXIT_UNSUPPORTED;
    case KVAD_ERR_NO_MEMORY:
    case KVAD_ERR_NO_BLOCKS: return CLI_EXIT_MEMORY;
    case KVAD_ERR_CONTEXT_FULL: return CLI_EXIT_CONTEXT;
    case KVAD_ERR_CANCELLED: return CLI_EXIT_INTERRUPTED;
    case KVAD_ERR_NOT_FINITE: break;
    }
    return CLI_EXIT_FAILURE;
}

int cli_fail(const struct kvad_error *err) {
    if (err->status != KVAD_ERR_CANCELLED)
        cli_say("%s", *err->text ? err->text : kvad_status_text(err->status));
    return cli_exit_code(err->status);
}

enum kvad_status cli_error(struct kvad_error *err, enum kvad_status status, const char *text) {
    err->status = status;
    snprintf(err->text, sizeof err->text, "%s", text);
    return status;
}

int cli_fail_memory(const char *what) {
    cli_say("out of memory: %s", what);
    return CLI_EXIT_MEMORY;
}

static void write_log(void *user, enum kvad_log_level level, const char *text) {
    const struct cli_settings *settings = user;
    uint64_t limit = KVAD_LOG_WARNING + settings->verbose;
    if (settings->quiet) limit = KVAD_LOG_ERROR;
    if ((uint64_t)level <= limit) cli_say("%s", text);
}

/* Loading that takes longer than this shows its progress on a terminal. */
enum { PROGRESS_AFTER_MS = 500 };

static bool report_progress(void *user, uint64_t done, uint64_t total) {
    struct cli_session *session = user;
    bool is_slow = cli_clock_ms() - session->load_ms > PROGRESS_AFTER_MS;
    if (!total || !is_slow) return !cli_is_interrupted();
    return cli_progress_show(&session->progress, "loading %3.0f %%",
                             100.0 * (double)done / (double)total);
}

void cli_model_options(const struct cli_settings *settings, struct cli_session *session,
                       struct kvad_model_options *options) {
    kvad_model_options_init(options);
    options->tokenizer_path = settings->tokenizer;
    options->activation = (enum kvad_activation)settings->activation;
    options->verify = settings->verify;
    options->no_map = settings->no_map;
    options->weights = (enum kvad_weight_type)settings->weights;
    options->n_heads = (uint32_t)settings->n_heads;
    options->n_threads = (unsigned)settings->n_threads;
    /* The log only reads the settings. */
    options->log = (struct kvad_log){write_log, (void *)(uintptr_t)settings};
    if (session) options->progress = (struct kvad_progress){report_progress, session};
}

int cli_session_load(struct cli_session *session, const struct cli_settings *settings) {
    struct kvad_model_options options;
    struct kvad_error err = {0};
    double start = cli_clock_ms();
    *session = (struct cli_session){
        .settings = settings, .load_ms = start, .progress = cli_progress_of(settings)};
    cli_model_options(settings, session, &options);
    enum kvad_status status =
        kvad_threads_create((unsigned)settings->n_threads, NULL, &session->threads, &err);
    options.threads = session->threads;
    if (status == KVAD_OK)
        status = kvad_model_load(settings->arguments.items[0], &options, &session->model, &err);
    cli_progress_clear(&session->progress);
    session->load_ms = cli_clock_ms() - start;
    if (status != KVAD_OK) return cli_fail(&err);
    kvad_model_get_info(session->model, &session->info);
    session->tokenizer = kvad_model_tokenizer(session->model);
    return CLI_EXIT_OK;
}

/* GPT-2's vocabulary as it is, or padded as nanoGPT does. */
enum { GPT2_IDS = 50257, GPT2_PADDED_IDS = 50304 };

void cli_say_no_tokenizer(const struct cli_session *session, const char *what) {
    bool is_gpt2 = session->info.n_vocab >= GPT2_IDS && session->info.n_vocab <= GPT2_PADDED_IDS;
    cli_say("%s: no tokenizer was found: %s; %s", session->settings->arguments.items[0], what,
            is_gpt2 ? "GPT-2's is vocab.json and merges.txt of "
                      "https://huggingface.co/openai-community/gpt2/tree/main: put them beside "
                      "the model or name their folder with --tokenizer"
                    : "put meta.pkl, tokenizer.json, or vocab.json and merges.txt beside the "
                      "model, or name them with --tokenizer");
}

uint32_t cli_session_n_ctx(const struct cli_session *session) {
    uint64_t asked = session->settings->n_ctx;
    return asked && asked < session->info.n_ctx ? (uint32_t)asked : session->info.n_ctx;
}

/* Types of keys and values in the cache. */
static enum kvad_kv_type k_type(const struct cli_settings *settings) {
    return (enum kvad_kv_type)(settings->k_type < 0 ? settings->kv : settings->k_type);
}
static enum kvad_kv_type v_type(const struct cli_settings *settings) {
    return (enum kvad_kv_type)(settings->v_type < 0 ? settings->kv : settings->v_type);
}

uint64_t cli_session_token_bytes(const struct cli_session *session) {
    return kvad_kv_bytes_per_token(&session->info, k_type(session->settings),
                                   v_type(session->settings));
}

/* Bytes of a paged pool that holds `n_sequences` of `n_tokens`: whole blocks. */
static uint64_t pool_bytes(const struct cli_session *session, uint32_t n_sequences,
                           size_t n_tokens) {
    uint64_t block = (uint64_t)session->settings->block_tokens;
    uint64_t rows = ((uint64_t)n_tokens + block - 1) / block * block;
    return rows * n_sequences * cli_session_token_bytes(session);
}

/* Weights in huge pages are read a third faster (docs/decisions/0006): say whether they are. */
static void say_pages(const struct cli_session *session) {
    struct kvad_machine machine;
    kvad_machine_read(&machine);
    cli_say("weights: %.1f MiB; %.1f MiB of the process in huge pages (the system's setting: %s)",
            (double)session->info.weight_bytes / (1 << 20),
            (double)kvad_machine_huge_page_bytes() / (1 << 20),
            *machine.huge_pages ? machine.huge_pages : "none");
}

int cli_session_open_engine(struct cli_session *session, uint32_t n_sequences, size_t n_tokens) {
    const struct cli_settings *settings = session->settings;
    if (settings->n_ctx > session->info.n_ctx) {
        char shown[CLI_VARIABLE_SIZE];
        cli_say("%s %llu is longer than the model's context of %u tokens",
                cli_option_shown(settings, "ctx", shown), (unsigned long long)settings->n_ctx,
                session->info.n_ctx);
        return CLI_EXIT_USAGE;
    }
    struct kvad_engine_options options;
    kvad_engine_options_init(&options);
    options.log = (struct kvad_log){write_log, (void *)(uintptr_t)settings};
    options.threads = session->threads;
    options.cache = (enum kvad_cache_policy)settings->cache;
    options.n_ctx = cli_session_n_ctx(session);
    options.n_sequences = n_sequences;
    options.block_tokens = (uint32_t)settings->block_tokens;
    options.k_type = k_type(settings);
    options.v_type = v_type(settings);
    options.cpu = cli_cpu_name(settings->cpu);
    options.kv_bytes = settings->kv_memory;
    if (!options.kv_bytes && n_tokens && settings->cache == KVAD_CACHE_PAGED)
        options.kv_bytes = pool_bytes(session, n_sequences, n_tokens);
    struct kvad_error err = {0};
    if (kvad_engine_open(session->model, &options, &session->engine, &err) != KVAD_OK)
        return cli_fail(&err);
    cli_interrupt_target(session->engine);
    if (settings->verbose && !settings->quiet) say_pages(session);
    return CLI_EXIT_OK;
}

void cli_session_deinit(struct cli_session *session) {
    cli_interrupt_target(NULL);
    kvad_engine_close(&session->engine);
    kvad_model_release(&session->model);
    kvad_threads_release(&session->threads);
    *session = (struct cli_session){0};
}
