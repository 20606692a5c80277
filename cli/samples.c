#include "cli/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/streams.h"

/* Samples computed side by side: weights are read once for all of them. */
enum { MAX_PARALLEL = 8 };

/* Tokens that a sample may have in the cache at the end: its last one is never fed. */
static size_t tokens_per_sample(const struct cli_generation *generation) {
    uint64_t n_tokens = generation->session->settings->n_tokens;
    uint64_t n = generation->prompt->n + n_tokens - (n_tokens > 0);
    uint32_t n_ctx = cli_session_n_ctx(generation->session);
    return (size_t)(n < n_ctx ? n : n_ctx);
}

/* As many as the user's cache memory holds, at least one. */
static size_t samples_at_once(const struct cli_generation *generation) {
    const struct cli_settings *settings = generation->session->settings;
    size_t n = generation->n_samples < MAX_PARALLEL ? generation->n_samples : MAX_PARALLEL;
    if (!settings->kv_memory) return n;
    uint64_t block = (uint64_t)settings->block_tokens;
    uint64_t rows = (tokens_per_sample(generation) + block - 1) / block * block;
    uint64_t fitting = settings->kv_memory / (rows * cli_session_token_bytes(generation->session));
    if (fitting < 1) return 1;
    return fitting < n ? (size_t)fitting : n;
}

void cli_sampler_options(const struct cli_session *session, size_t index,
                         struct kvad_sampler_options *options) {
    const struct cli_settings *settings = session->settings;
    kvad_sampler_options_init(options);
    options->temperature = settings->temperature;
    options->top_k = (uint32_t)settings->top_k;
    options->top_k_rule = (enum kvad_top_k_rule)settings->top_k_rule;
    options->top_p = settings->top_p;
    options->min_p = settings->min_p;
    options->typical_p = settings->typical;
    options->repetition_penalty = settings->repetition_penalty;
    options->presence_penalty = settings->presence_penalty;
    options->frequency_penalty = settings->frequency_penalty;
    options->penalty_window = (uint32_t)settings->penalty_window;
    options->no_repeat_ngram = (uint32_t)settings->no_repeat_ngram;
    options->logit_bias = settings->logit_bias.items;
    options->n_logit_bias = settings->logit_bias.n;
    options->n_tokens = session->info.n_tokens;
    options->seed = settings->seed;
    options->sample_index = settings->sample_index + index;
    memcpy(options->order, settings->order, sizeof options->order);
}

void cli_request_options(const struct cli_session *session, struct kvad_request_options *options) {
    const struct cli_settings *settings = session->settings;
    kvad_request_options_init(options);
    options->max_tokens = (size_t)settings->n_tokens;
    options->min_tokens = (size_t)settings->min_tokens;
    options->on_overflow = (enum kvad_overflow)settings->on_overflow;
    options->ignore_eos = settings->ignore_eos;
    options->logprobs = settings->json;
    options->stop_ids = settings->stop_ids.items;
    options->n_stop_ids = settings->stop_ids.n;
    options->stop_strings = settings->stop.items;
    options->n_stop_strings = settings->stop.n;
}

static int submit(struct cli_generation *generation, size_t index) {
    struct kvad_sampler_options sampler;
    struct kvad_request_options options;
    struct kvad_error err = {0};
    cli_sampler_options(generation->session, index, &sampler);
    cli_request_options(generation->session, &options);
    options.prompt = generation->prompt->ids;
    options.n_prompt = generation->prompt->n;
    options.sampler = &sampler;
    struct kvad_request **request = &generation->samples[index].request;
    if (kvad_request_submit(generation->session->engine, &options, request, &err) != KVAD_OK)
        return cli_fail(&err);
    return CLI_EXIT_OK;
}

static bool sample_append(struct cli_sample *sample, int32_t id, double logprob) {
    if (sample->n_ids == sample->capacity) {
        size_t capacity = sample->capacity ? 2 * sample->capacity : 64;
        int32_t *ids = realloc(sample->ids, capacity * sizeof *ids);
        if (ids) sample->ids = ids;
        double *logprobs = realloc(sample->logprobs, capacity * sizeof *logprobs);
        if (logprobs) sample->logprobs = logprobs;
        if (!ids || !logprobs) return false;
        sample->capacity = capacity;
    }
    sample->ids[sample->n_ids] = id;
    sample->logprobs[sample->n_ids++] = logprob;
    return true;
}

/* Takes all events of a sample. */
static int collect(struct cli_sample *sample) {
    struct kvad_event event;
    while (sample->finish == KVAD_FINISH_NONE && kvad_request_poll(sample->request, &event)) {
        bool ok = event.token < 0 || sample_append(sample, event.token, event.logprob);
        ok = ok && cli_text_append(&sample->text, event.text, event.text_size);
        if (!ok) return cli_fail_memory("the generated text");
        sample->finish = event.finish;
        if (event.finish == KVAD_FINISH_ERROR) kvad_request_error(sample->request, &sample->error);
    }
    return CLI_EXIT_OK;
}

static void echo_prompt(const struct cli_generation *generation) {
    const struct cli_prompt *prompt = generation->prompt;
    const struct kvad_tokenizer *tokenizer = generation->session->tokenizer;
    if (generation->session->settings->no_echo || !prompt->is_given) return;
    if (prompt->has_text) cli_text_print(&prompt->text, 0);
    for (size_t i = 0; i < prompt->n && !prompt->has_text; i++) {
        const char *bytes;
        size_t size;
        if (!tokenizer)
            printf("%d ", prompt->ids[i]);
        else if (kvad_tokenizer_piece(tokenizer, prompt->ids[i], &bytes, &size, NULL) == KVAD_OK)
            fwrite(bytes, 1, size, stdout);
    }
}

static int begin_output(const struct cli_generation *generation) {
    if (!generation->session->settings->json) echo_prompt(generation);
    return cli_flush_output();
}

static void write_new(const struct cli_generation *generation, struct cli_sample *sample) {
    if (generation->session->tokenizer) {
        cli_text_print(&sample->text, sample->n_written);
        sample->n_written = sample->text.size;
        return;
    }
    for (; sample->n_written < sample->n_ids; sample->n_written++)
        printf("%s%d", sample->n_written ? " " : "", sample->ids[sample->n_written]);
}

/* nanoGPT's separator follows every sample; a single one is left as it is, with a last newline
 * where a terminal's prompt comes next. */
static void end_sample(const struct cli_generation *generation, const struct cli_sample *sample) {
    bool ends_line = sample->text.size && sample->text.bytes[sample->text.size - 1] == '\n';
    if (generation->n_samples > 1)
        fputs("\n---------------\n", stdout);
    else if (!generation->session->tokenizer || (!ends_line && isatty(STDOUT_FILENO)))
        putchar('\n');
}

/* Writes what is new of the front sample, and of the next ones when it has ended. */
static int write_front(struct cli_generation *generation) {
    if (generation->session->settings->json) return CLI_EXIT_OK;
    while (generation->front < generation->n_samples) {
        struct cli_sample *sample = &generation->samples[generation->front];
        write_new(generation, sample);
        if (sample->finish == KVAD_FINISH_NONE) break;
        end_sample(generation, sample);
        if (++generation->front < generation->n_samples) echo_prompt(generation);
    }
    return cli_flush_output();
}

/* Samples [first, last) that run together. */
struct group {
    struct cli_generation *generation;
    size_t first, last;
    double start_ms, first_token_ms; /* the latter 0 until every sample has a token */
};

static void group_cancel(const struct group *group, enum kvad_finish finish) {
    for (size_t i = group->first; i < group->last; i++) {
        struct cli_sample *sample = &group->generation->samples[i];
        if (sample->finish != KVAD_FINISH_NONE) continue;
        if (finish == KVAD_FINISH_NONE)
            kvad_request_cancel(sample->request);
        else
            sample->finish = finish;
    }
}

static int group_collect(struct group *group) {
    bool all_have_begun = true;
    for (size_t i = group->first; i < group->last; i++) {
        struct cli_sample *sample = &group->generation->samples[i];
        int status = collect(sample);
        if (status != CLI_EXIT_OK) return status;
        all_have_begun &= sample->n_ids || sample->finish != KVAD_FINISH_NONE;
    }
    if (all_have_begun && group->first_token_ms == 0) group->first_token_ms = cli_clock_ms();
    return write_front(group->generation);
}

static int group_steps(struct group *group) {
    struct kvad_error err = {0};
    size_t n_active = group->last - group->first;
    while (n_active) {
        enum kvad_status step =
            kvad_engine_step(group->generation->session->engine, &n_active, &err);
        if (step == KVAD_ERR_CANCELLED)
            group_cancel(group, KVAD_FINISH_NONE); /* the next step lets them end */
        else if (step != KVAD_OK)
            return cli_fail(&err);
        int status = group_collect(group);
        if (status != CLI_EXIT_OK) return status;
    }
    return CLI_EXIT_OK;
}

static void group_count(const struct group *group) {
    struct cli_generation *generation = group->generation;
    double end_ms = cli_clock_ms();
    double first_ms = group->first_token_ms > 0 ? group->first_token_ms : end_ms;
    generation->prefill_ms += first_ms - group->start_ms;
    generation->decode_ms += end_ms - first_ms;
    for (size_t i = group->first; i < group->last; i++) {
        size_t n = generation->samples[i].n_ids;
        if (n == 0) continue;
        generation->prefill_tokens += generation->prompt->n;
        generation->decode_tokens += n - 1; /* the first token is the prefill's */
    }
}

static int group_run(struct cli_generation *generation, size_t first, size_t last) {
    struct group group = {generation, first, last, cli_clock_ms(), 0};
    int status = CLI_EXIT_OK;
    for (size_t i = first; i < last && status == CLI_EXIT_OK; i++)
        status = submit(generation, i);
    /* Only now that every value has been accepted does anything go out. */
    if (status == CLI_EXIT_OK && first == 0) status = begin_output(generation);
    if (status == CLI_EXIT_OK) status = group_steps(&group);
    group_cancel(&group, status == CLI_EXIT_OK ? KVAD_FINISH_CANCELLED : KVAD_FINISH_ERROR);
    if (status == CLI_EXIT_OK) group_count(&group);
    for (size_t i = first; i < last; i++)
        kvad_request_destroy(&generation->samples[i].request);
    return status;
}

/* Exit code of finished samples: the first that failed decides. */
static int verdict(const struct cli_generation *generation) {
    for (size_t i = 0; i < generation->n_samples; i++) {
        const struct cli_sample *sample = &generation->samples[i];
        if (sample->finish == KVAD_FINISH_ERROR) return cli_fail(&sample->error);
        if (sample->finish == KVAD_FINISH_CANCELLED) return CLI_EXIT_INTERRUPTED;
    }
    return CLI_EXIT_OK;
}

static int run_groups(struct cli_generation *generation, size_t at_once) {
    int status = CLI_EXIT_OK;
    for (size_t i = 0; i < generation->n_samples && status == CLI_EXIT_OK; i += at_once) {
        size_t last = i + at_once < generation->n_samples ? i + at_once : generation->n_samples;
        status = group_run(generation, i, last);
        if (cli_is_interrupted()) status = CLI_EXIT_INTERRUPTED;
    }
    return status;
}

int cli_generation_run(struct cli_generation *generation, struct cli_session *session,
                       const struct cli_prompt *prompt) {
    *generation = (struct cli_generation){.session = session, .prompt = prompt};
    generation->n_samples = (size_t)session->settings->n_samples;
    generation->samples = calloc(generation->n_samples, sizeof *generation->samples);
    if (!generation->samples) return cli_fail_memory("the samples");
    size_t at_once = samples_at_once(generation);
    int status = cli_session_open_engine(session, (uint32_t)at_once, tokens_per_sample(generation));
    if (status == CLI_EXIT_OK) status = run_groups(generation, at_once);
    generation->has_result = status == CLI_EXIT_OK || status == CLI_EXIT_INTERRUPTED;
    return status == CLI_EXIT_OK ? verdict(generation) : status;
}

void cli_generation_deinit(struct cli_generation *generation) {
    for (size_t i = 0; i < generation->n_samples && generation->samples; i++) {
        struct cli_sample *sample = &generation->samples[i];
        kvad_request_destroy(&sample->request);
        free(sample->ids);
        free(sample->logprobs);
        cli_text_deinit(&sample->text);
    }
    free(generation->samples);
    *generation = (struct cli_generation){0};
}
