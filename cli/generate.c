/* kvad generate: continue a text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/batch.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/samples.h"
#include "cli/streams.h"

static const struct cli_choice overflows[] = {
    {"stop", KVAD_OVERFLOW_STOP},
    {"recompute", KVAD_OVERFLOW_RECOMPUTE},
    {"error", KVAD_OVERFLOW_ERROR},
    {0},
};

static const struct cli_option length_options[] = {
    {.name = "max-tokens",
     .letter = 'n',
     .kind = CLI_INTEGER,
     .offset = CLI_AT(n_tokens),
     .value = "N",
     .max = INT32_MAX,
     .initial = "500",
     .known_as = "tokens max-new-tokens n-predict num-tokens n-tokens length steps",
     .help = "new tokens of a sample at most; 0 only reads the prompt"},
    {.name = "min-tokens",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(min_tokens),
     .value = "N",
     .max = INT32_MAX,
     .initial = "0",
     .help = "tokens before which no end id is sampled; stop texts end at any time"},
    {.name = "samples",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(n_samples),
     .value = "N",
     .min = 1,
     .max = 10000,
     .initial = "1",
     .known_as = "num-samples n-samples num-return-sequences",
     .help =
         "samples from the one prompt, each another stream of the seed; in text each is followed "
         "by a line of dashes"},
    {.name = "sample-index",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(sample_index),
     .value = "N",
     .max = INT32_MAX,
     .initial = "0",
     .help = "index of the first sample: 3 makes the fourth one of --samples 4 again"},
    {.name = "stop",
     .kind = CLI_TEXTS,
     .offset = CLI_AT(stop),
     .value = "TEXT",
     .known_as = "stop-string reverse-prompt stop-sequence",
     .help = "end before TEXT; may be given several times"},
    {.name = "stop-id",
     .kind = CLI_IDS,
     .offset = CLI_AT(stop_ids),
     .value = "LIST",
     .known_as = "stop-token-ids eos-id",
     .help = "end at one of these ids"},
    {.name = "ignore-eos",
     .kind = CLI_FLAG,
     .offset = CLI_AT(ignore_eos),
     .known_as = "no-eos",
     .help = "go on after the model's end of text, as nanoGPT does"},
    {.name = "on-overflow",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(on_overflow),
     .initial = "stop",
     .choices = overflows,
     .known_as = "context-shift overflow",
     .help =
         "when the context is full: stop; or recompute the last tokens for every further one, as "
         "nanoGPT does (slow: positions are learned, so nothing cached fits); or fail"},
};
static const struct cli_group length_group = {"Length", length_options,
                                              CLI_COUNT_OF(length_options)};

static const struct cli_choice top_k_rules[] = {
    {"value", KVAD_TOP_K_VALUE}, {"rank", KVAD_TOP_K_RANK}, {0}};
static const struct cli_choice stages[] = {
    {"bias", KVAD_STAGE_BIAS},
    {"penalties", KVAD_STAGE_PENALTIES},
    {"ngram", KVAD_STAGE_NGRAM},
    {"temperature", KVAD_STAGE_TEMPERATURE},
    {"top-k", KVAD_STAGE_TOP_K},
    {"typical", KVAD_STAGE_TYPICAL},
    {"top-p", KVAD_STAGE_TOP_P},
    {"min-p", KVAD_STAGE_MIN_P},
    {0},
};

static const struct cli_option sampling_options[] = {
    {.name = "temperature",
     .kind = CLI_NUMBER,
     .offset = CLI_AT(temperature),
     .value = "T",
     .max = 1000,
     .initial = "0.8",
     .known_as = "temp",
     .help = "0 always takes the likeliest token"},
    {.name = "top-k",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(top_k),
     .value = "K",
     .max = INT32_MAX,
     .initial = "200",
     .help = "only the K likeliest tokens; 0 is all"},
    {.name = "top-k-rule",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(top_k_rule),
     .initial = "value",
     .choices = top_k_rules,
     .help = "with ties at the edge: value keeps them all, as nanoGPT does; rank keeps exactly K"},
    {.name = "top-p",
     .kind = CLI_NUMBER,
     .offset = CLI_AT(top_p),
     .value = "P",
     .max = 1,
     .initial = "1",
     .known_as = "nucleus",
     .help = "only the likeliest tokens that together reach probability P"},
    {.name = "min-p",
     .kind = CLI_NUMBER,
     .offset = CLI_AT(min_p),
     .value = "P",
     .max = 1,
     .initial = "0",
     .help = "only tokens with at least P times the probability of the likeliest"},
    {.name = "typical",
     .kind = CLI_NUMBER,
     .offset = CLI_AT(typical),
     .value = "P",
     .max = 1,
     .initial = "1",
     .known_as = "typical-p",
     .help = "only the most typical tokens that together reach probability P"},
    {.name = "repetition-penalty",
     .kind = CLI_NUMBER,
     .offset = CLI_AT(repetition_penalty),
     .value = "R",
     .max = 1000,
     .initial = "1",
     .known_as = "repeat-penalty",
     .help = "above 1 makes tokens that already occurred less likely"},
    {.name = "presence-penalty",
     .kind = CLI_NUMBER,
     .offset = CLI_AT(presence_penalty),
     .value = "R",
     .min = -1000,
     .max = 1000,
     .initial = "0",
     .help = "taken from the logit of a token that already occurred"},
    {.name = "frequency-penalty",
     .kind = CLI_NUMBER,
     .offset = CLI_AT(frequency_penalty),
     .value = "R",
     .min = -1000,
     .max = 1000,
     .initial = "0",
     .help = "taken from the logit of a token for every time it occurred"},
    {.name = "penalty-window",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(penalty_window),
     .value = "N",
     .max = INT32_MAX,
     .initial = "0",
     .known_as = "repeat-last-n",
     .help = "how many of the last tokens the penalties see; 0 is all"},
    {.name = "no-repeat-ngram",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(no_repeat_ngram),
     .value = "N",
     .max = INT32_MAX,
     .initial = "0",
     .known_as = "no-repeat-ngram-size",
     .help = "no N tokens in a row occur twice; 0 is off"},
    {.name = "logit-bias",
     .kind = CLI_BIASES,
     .offset = CLI_AT(logit_bias),
     .value = "ID=BIAS",
     .help = "added to the logit of a token; -inf excludes it; may be given several times"},
    {.name = "seed",
     .letter = 's',
     .kind = CLI_INTEGER,
     .offset = CLI_AT(seed),
     .value = "N",
     .max = 0x1p53,
     .initial = "1337",
     .known_as = "random-seed",
     .help = "the same seed gives the same text, whatever the cache, threads or machine"},
    {.name = "order",
     .kind = CLI_STAGES,
     .offset = CLI_AT(order),
     .value = "LIST",
     .choices = stages,
     .known_as = "samplers sampler-order",
     .help = "the sampler's steps, separated by commas; they are, in the order of the default"},
};
static const struct cli_group sampling_group = {"Sampling", sampling_options,
                                                CLI_COUNT_OF(sampling_options)};

static const struct cli_option echo_options[] = {
    {.name = "no-echo",
     .kind = CLI_FLAG,
     .offset = CLI_AT(no_echo),
     .known_as = "no-display-prompt",
     .help = "write the continuation without the prompt before it"},
};
static const struct cli_group echo_group = {"Text", echo_options, CLI_COUNT_OF(echo_options)};

static const struct cli_option batch_options[] = {
    {.name = "batch",
     .kind = CLI_FILE,
     .offset = CLI_AT(batch),
     .value = "FILE",
     .no_variable = true,
     .help =
         "many prompts at once: each line of FILE is a JSON string, or an object with prompt or "
         "ids and, where wanted, max_tokens, seed, priority and salt (only prompts with the "
         "same salt share memory). Each gives a line of JSON, in the order of the file"},
    {.name = "parallel",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(n_parallel),
     .value = "N",
     .min = 1,
     .max = 65536,
     .initial = "16",
     .help = "prompts of a batch that run at the same time, if --kv-memory has room for them"},
    {.name = "no-prefix-cache",
     .kind = CLI_FLAG,
     .offset = CLI_AT(no_prefix_cache),
     .help = "compute every prompt of a batch from its first token, also where it begins like "
             "another one"},
    {.name = "show-cache",
     .kind = CLI_FLAG,
     .offset = CLI_AT(show_cache),
     .help = "draw the blocks of the cache on stderr while a batch runs"},
};
static const struct cli_group batch_group = {"Batch", batch_options, CLI_COUNT_OF(batch_options)};

static const struct cli_group *const groups[] = {
    &cli_prompt_group, &length_group,     &sampling_group,   &echo_group, &batch_group,
    &cli_model_group,  &cli_engine_group, &cli_output_group, NULL,
};

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

/* Without a prompt: the end of text that separates GPT-2's training texts, else a newline as
 * nanoGPT's sample.py does. */
static int default_prompt(struct cli_prompt *prompt, const struct cli_session *session) {
    int32_t eos = session->info.eos;
    if (eos < 0 && !session->tokenizer) {
        cli_say("a model without a tokenizer needs a prompt: --ids LIST");
        return CLI_EXIT_USAGE;
    }
    if (eos < 0) return cli_encode(session->tokenizer, "\n", 1, false, &prompt->ids, &prompt->n);
    prompt->ids = malloc(sizeof *prompt->ids);
    if (!prompt->ids) return cli_fail_memory("the prompt");
    prompt->ids[0] = eos;
    prompt->n = 1;
    return CLI_EXIT_OK;
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
        return cli_usage_error(&cli_generate, "--stop-id %d: the model's ids end at %u",
                               ids->items[i], session->info.n_vocab - 1);
    }
    return CLI_EXIT_OK;
}

static int prepare(struct cli_prompt *prompt, struct cli_session *session) {
    int status = check_stop_ids(session);
    if (status == CLI_EXIT_OK && prompt->is_given)
        status = cli_prompt_encode(prompt, session->settings, session->tokenizer);
    else if (status == CLI_EXIT_OK)
        status = default_prompt(prompt, session);
    if (status != CLI_EXIT_OK) return status;
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
    if (settings->prompt || settings->file || settings->ids.is_given || settings->n_samples > 1)
        return cli_usage_error(&cli_generate, "--batch excludes -p, -f, --ids and --samples");
    int status = cli_session_load(&session, settings);
    if (status == CLI_EXIT_OK) status = check_stop_ids(&session);
    if (status == CLI_EXIT_OK) status = cli_batch_run(&session);
    cli_session_deinit(&session);
    return status;
}

static int run(const struct cli_settings *settings) {
    struct cli_session session = {0};
    struct cli_prompt prompt = {0};
    cli_catch_interrupt();
    if (settings->batch) return run_batch(settings);
    if (settings->show_cache)
        return cli_usage_error(&cli_generate, "--show-cache belongs to --batch");
    int status = cli_prompt_read(&prompt, settings, &cli_generate, true);
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
    .groups = groups,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
