/* kvad generate: continue a text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/batch.h"
#include "cli/commands.h"
#include "cli/generate_options.h"
#include "cli/groups.h"
#include "cli/samples.h"
#include "cli/streams.h"

static const struct cli_example examples[] = {
    {"kvad generate models/shakespeare-char -p 'ROMEO:'", "continue a text"},
    {"kvad generate gpt2 -f story.txt -n 100 --temperature 0",
     "100 tokens after the text of a file, always the likeliest"},
    {"echo 'Once upon a time' | kvad generate gpt2 --stop $'\\n\\n'",
     "the prompt from a pipe; an empty line ends the text"},
    {"kvad generate out/ckpt.pt --samples 10 --seed 7", "ten samples of a nanoGPT checkpoint"},
    {"kvad generate gpt2 --ids 15496,11 --json", "token ids in, one JSON object out"},
    {"kvad generate gpt2 --batch prompts.jsonl --show-cache --kv-memory 64M",
     "many prompts at once; shows blocks fill, share and go"},
    {0},
};

static int default_prompt(struct cli_prompt *prompt, const struct cli_session *session) {
    struct kvad_error err = {0};
    enum kvad_status status = cli_default_ids(session, &prompt->ids, &prompt->n, &err);
    return status == KVAD_OK ? CLI_EXIT_OK : cli_fail(&err);
}

/* Byte-level BPE keeps the space before a word with the word, so a space at the end of a prompt
 * makes a text that such a model has hardly seen. */
static void warn_of_last_space(const struct cli_prompt *prompt, const struct cli_session *session) {
    size_t size = prompt->text.size, n = 0;
    int32_t id[2];
    if (!prompt->has_text || prompt->text.bytes[size - 1] != ' ' || session->settings->quiet)
        return;
    bool joins_spaces =
        kvad_tokenizer_encode(session->tokenizer, " t", 2, 0, id, 2, &n, NULL) == KVAD_OK && n == 1;
    if (joins_spaces)
        cli_say(
            "the prompt ends with a space; this model wants the space before the next word to be "
            "its own to say");
}

static int check_length(const struct cli_prompt *prompt, const struct cli_session *session) {
    const struct cli_settings *settings = session->settings;
    uint32_t n_ctx = cli_session_n_ctx(session);
    if (prompt->n <= n_ctx) return CLI_EXIT_OK;
    if (settings->on_overflow != KVAD_OVERFLOW_RECOMPUTE) {
        cli_say("the prompt has %zu tokens and the context only %u; shorten it, or take its last "
                "tokens with --on-overflow recompute",
                prompt->n, n_ctx);
        return CLI_EXIT_CONTEXT;
    }
    if (!settings->quiet)
        cli_say("the prompt has %zu tokens; the model sees the last %u of them", prompt->n, n_ctx);
    return CLI_EXIT_OK;
}

static int check_stop_ids(const struct cli_session *session) {
    const struct cli_ids *ids = &session->settings->stop_ids;
    for (size_t i = 0; i < ids->n; i++) {
        if ((uint32_t)ids->items[i] < session->info.n_vocab) continue;
        char shown[CLI_VARIABLE_SIZE];
        return cli_usage_error(&cli_generate, "%s %d: the model's ids end at %u",
                               cli_option_shown(session->settings, "stop-id", shown), ids->items[i],
                               session->info.n_vocab - 1);
    }
    return CLI_EXIT_OK;
}

static int prepare(struct cli_prompt *prompt, struct cli_session *session) {
    int status = check_stop_ids(session);
    if (status == CLI_EXIT_OK && prompt->is_given)
        status = cli_prompt_encode(prompt, session);
    else if (status == CLI_EXIT_OK)
        status = default_prompt(prompt, session);
    if (status != CLI_EXIT_OK) return status;
    if (!session->tokenizer && !session->settings->quiet)
        cli_say_no_tokenizer(session, "ids are written instead of text");
    warn_of_last_space(prompt, session);
    return check_length(prompt, session);
}

/* A text that ends before it was asked to would look like the model's wish. */
static void say_if_full(const struct cli_generation *generation) {
    const struct cli_settings *settings = generation->session->settings;
    for (size_t i = 0; i < generation->n_samples; i++) {
        const struct cli_sample *sample = &generation->samples[i];
        if (sample->finish != KVAD_FINISH_LENGTH || sample->n_ids >= settings->n_tokens) continue;
        cli_say("the context of %u tokens is full after %zu new ones; --on-overflow recompute "
                "goes on, slowly",
                cli_session_n_ctx(generation->session), sample->n_ids);
        return;
    }
}

static int generate(struct cli_session *session, const struct cli_prompt *prompt) {
    const struct cli_settings *settings = session->settings;
    struct cli_generation generation;
    int status = cli_generation_run(&generation, session, prompt);
    if (generation.has_result && settings->json) {
        int printed = cli_generation_print_json(&generation);
        if (status == CLI_EXIT_OK) status = printed;
    }
    if (generation.has_result && !settings->quiet) say_if_full(&generation);
    bool says_timing = settings->verbose || isatty(STDERR_FILENO);
    if (generation.has_result && says_timing && !settings->quiet)
        cli_generation_print_timing(&generation);
    cli_generation_deinit(&generation);
    return status;
}

static int run_batch(const struct cli_settings *settings) {
    struct cli_session session = {0};
    if (settings->prompt || settings->file || settings->ids.is_given)
        return cli_usage_error(&cli_generate, "--batch excludes -p, -f, --ids and --samples");
    int status = cli_session_load(&session, settings);
    if (status == CLI_EXIT_OK) status = check_stop_ids(&session);
    if (status == CLI_EXIT_OK) status = cli_batch_run(&session);
    cli_session_deinit(&session);
    return status;
}

/* Refuses what a batch, or a single prompt, would ignore. */
static int check_mode(const struct cli_settings *s) {
    const struct cli_stray strays[] = {
        {!s->batch, "parallel no-prefix-cache show-cache", "", " belongs to --batch"},
        {s->batch && s->n_samples > 1, "samples", "--batch excludes -p, -f, --ids and ", ""},
        {s->batch, "no-echo", "", " and --batch exclude each other: its answers hold no prompts"},
    };
    return cli_refuse_strays(s, strays, CLI_COUNT_OF(strays));
}

static int run(const struct cli_settings *settings) {
    struct cli_session session = {0};
    struct cli_prompt prompt = {0};
    int status = check_mode(settings);
    if (status != CLI_EXIT_OK) return status;
    cli_catch_interrupt();
    if (settings->batch) return run_batch(settings);
    status = cli_prompt_read(&prompt, settings, &cli_generate, true);
    if (status == CLI_EXIT_OK) status = cli_session_load(&session, settings);
    if (status == CLI_EXIT_OK) status = prepare(&prompt, &session);
    if (status == CLI_EXIT_OK) status = generate(&session, &prompt);
    cli_prompt_deinit(&prompt);
    cli_session_deinit(&session);
    return status;
}

const struct cli_command cli_generate = {
    .name = "generate",
    .summary = "continue a text with a model",
    .synopsis = "MODEL [-p TEXT | -f FILE | --ids LIST] [options]",
    .description =
        "Writes the prompt and its continuation, whole characters as they become certain. The "
        "prompt "
        "comes from -p, -f, --ids, or standard input if that is no terminal. Without one, or with "
        "an "
        "empty one, the model starts from its end-of-text id, or from a newline if it has none.\n\n"
        "Length, temperature, top-k and seed are by default those of nanoGPT's sample.py. Ctrl-C "
        "ends the text cleanly, a second one "
        "the program. Without a tokenizer ids are written instead of text.",
    .examples = examples,
    .groups = cli_generate_groups,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
