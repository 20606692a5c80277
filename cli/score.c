/* kvad score: the log-probability of every token, through any path of the engine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/against.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "cli/npy.h"
#include "cli/session.h"
#include "cli/streams.h"
#include "lab/accuracy.h"

enum { DEFAULT_CHUNK = 128 }; /* rows of logits held at once */

static const struct cli_choice reference_types[] = {{"none", -1},
                                                    KVAD_WEIGHT_TYPE_LIST(CLI_WEIGHTS_CHOICE){0}};

static const struct cli_option score_options[] = {
    {.name = "logits",
     .kind = CLI_FILE,
     .offset = CLI_AT(logits),
     .value = "OUT.npy",
     .no_variable = true,
     .help = "also write the logits, float32 of shape [tokens][vocabulary]"},
    {.name = "hidden",
     .kind = CLI_FILE,
     .offset = CLI_AT(hidden),
     .value = "OUT.npy",
     .no_variable = true,
     .help =
         "also write the hidden states, float32 of shape [layers + 1][tokens][width]: embedding, "
         "then after each layer, the last after the final norm"},
    {.name = "against",
     .kind = CLI_CHOICE,
     .offset = CLI_AT(against),
     .value = "TYPE",
     .initial = "none",
     .choices = reference_types,
     .no_variable = true,
     .help = "also load the model with weights of TYPE and a float32 cache, and say what the types "
             "asked for cost: top-1 agreement, KL divergence, logit errors, perplexity"},
    {.name = "chunk",
     .kind = CLI_INTEGER,
     .offset = CLI_AT(chunk),
     .value = "N",
     .min = 1,
     .max = INT32_MAX,
     .known_as = "ubatch-size batch-size",
     .help = "tokens computed in one step; any number gives the same bits"},
};
static const struct cli_group score_group = {"Score", score_options, CLI_COUNT_OF(score_options)};

static const struct cli_group *const groups[] = {
    &cli_prompt_group, &score_group, &cli_model_group, &cli_engine_group, &cli_machine_group,
    &cli_output_group, NULL,
};

/* One text on its way through the engine. */
struct scoring {
    struct cli_session *session;
    const int32_t *ids; /* [n] */
    size_t n;
    struct kvad_sequence *sequence;
    float *logits;     /* [step][n_vocab] of one step */
    float *hidden;     /* [n_layers + 1][tokens of a step][d_model], or NULL */
    float *hidden_all; /* [n_layers + 1][n][d_model], or NULL */
    double *logprobs;  /* [n]; the first is not a number */
    struct cli_npy logits_file;
    struct cli_against *against; /* NULL: nothing to compare with */
};

static size_t n_states(const struct scoring *scoring) {
    return scoring->session->info.n_layers + 1u;
}

/* Keeps what one step gave: logits of tokens [first, first + n_rows), hidden states of the last
 * n_rows of its n_tokens. */
static int keep(struct scoring *scoring, size_t first, size_t n_rows, size_t n_tokens) {
    size_t n_vocab = scoring->session->info.n_vocab, d = scoring->session->info.d_model;
    for (size_t r = 0; r < n_rows && first + r + 1 < scoring->n; r++)
        scoring->logprobs[first + r + 1] = kvad_accuracy_logprob(
            scoring->logits + r * n_vocab, n_vocab, scoring->ids[first + r + 1]);
    for (size_t s = 0; scoring->hidden && s < n_states(scoring); s++)
        memcpy(scoring->hidden_all + (s * scoring->n + first) * d,
               scoring->hidden + (s * n_tokens + n_tokens - n_rows) * d,
               n_rows * d * sizeof(float));
    bool ok = !scoring->logits_file.file ||
              cli_npy_write(&scoring->logits_file, scoring->logits, n_rows * n_vocab);
    if (!ok) return CLI_EXIT_FAILURE;
    if (!scoring->against) return CLI_EXIT_OK;
    return cli_against_rows(scoring->against, scoring->ids, scoring->n, first, n_rows,
                            scoring->logits);
}

/* Appends tokens [from, end) and keeps the logits of the last n_rows of them. */
static int step(struct scoring *scoring, size_t from, size_t end, size_t n_rows) {
    struct kvad_error err = {0};
    struct kvad_eval_item item = {
        .sequence = scoring->sequence,
        .tokens = scoring->ids + from,
        .n_tokens = end - from,
        .n_rows = n_rows,
        .logits = scoring->logits,
        .hidden = scoring->hidden,
    };
    if (kvad_eval(scoring->session->engine, &item, 1, &err) != KVAD_OK) return cli_fail(&err);
    return keep(scoring, end - n_rows, n_rows, end - from);
}

/* The policy none computes the whole text again for every token, as a program without a cache does.
 */
static int run_steps(struct scoring *scoring, size_t chunk) {
    bool is_cached = scoring->session->settings->cache != KVAD_CACHE_NONE;
    struct kvad_error err = {0};
    int status = CLI_EXIT_OK;
    for (size_t at = 0; at < scoring->n && status == CLI_EXIT_OK;) {
        size_t end = scoring->n - at < chunk ? scoring->n : at + chunk;
        if (is_cached) {
            status = step(scoring, at, end, end - at);
        } else {
            end = at + 1;
            if (kvad_sequence_truncate(scoring->sequence, 0, &err) != KVAD_OK)
                return cli_fail(&err);
            status = step(scoring, 0, end, 1);
        }
        at = end;
    }
    return status;
}

/* a * b * c floats, or NULL when there are too many. */
static float *floats(size_t a, size_t b, size_t c) {
    if (b && a > SIZE_MAX / sizeof(float) / b) return NULL;
    return a * b <= SIZE_MAX / sizeof(float) / c ? malloc(a * b * c * sizeof(float)) : NULL;
}

static int allocate(struct scoring *scoring, size_t chunk) {
    const struct cli_session *session = scoring->session;
    bool is_cached = session->settings->cache != KVAD_CACHE_NONE;
    size_t d = session->info.d_model;
    scoring->logits = floats(is_cached ? chunk : 1, session->info.n_vocab, 1);
    scoring->logprobs = calloc(scoring->n, sizeof *scoring->logprobs);
    if (session->settings->hidden) {
        scoring->hidden = floats(n_states(scoring), is_cached ? chunk : scoring->n, d);
        scoring->hidden_all = floats(n_states(scoring), scoring->n, d);
    }
    bool ok = scoring->logits && scoring->logprobs;
    ok = ok && (!session->settings->hidden || (scoring->hidden && scoring->hidden_all));
    if (!ok) return cli_fail_memory("the logits or hidden states");
    scoring->logprobs[0] = NAN;
    return CLI_EXIT_OK;
}

static int write_hidden(const struct scoring *scoring, const char *path) {
    const size_t shape[] = {n_states(scoring), scoring->n, scoring->session->info.d_model};
    struct cli_npy npy;
    bool ok = cli_npy_open(&npy, path, shape, 3) &&
              cli_npy_write(&npy, scoring->hidden_all, shape[0] * shape[1] * shape[2]);
    ok = cli_npy_close(&npy) && ok;
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILURE;
}

static int compute(struct scoring *scoring) {
    const struct cli_settings *settings = scoring->session->settings;
    size_t chunk = settings->chunk ? (size_t)settings->chunk : DEFAULT_CHUNK;
    if (chunk > scoring->n) chunk = scoring->n;
    struct kvad_error err = {0};
    int status = cli_session_open_engine(scoring->session, 1, scoring->n);
    if (status == CLI_EXIT_OK) status = allocate(scoring, chunk);
    if (status != CLI_EXIT_OK) return status;
    if (kvad_sequence_create(scoring->session->engine, &scoring->sequence, &err) != KVAD_OK)
        return cli_fail(&err);
    const size_t shape[] = {scoring->n, scoring->session->info.n_vocab};
    if (settings->logits && !cli_npy_open(&scoring->logits_file, settings->logits, shape, 2))
        return CLI_EXIT_FAILURE;
    if (scoring->against) status = cli_against_open(scoring->against, settings, scoring->n, chunk);
    if (status == CLI_EXIT_OK) status = run_steps(scoring, chunk);
    if (!cli_npy_close(&scoring->logits_file) && status == CLI_EXIT_OK) status = CLI_EXIT_FAILURE;
    if (status == CLI_EXIT_OK && settings->hidden) status = write_hidden(scoring, settings->hidden);
    return status;
}

static double total_logprob(const struct scoring *scoring) {
    double sum = 0;
    for (size_t i = 1; i < scoring->n; i++)
        sum += scoring->logprobs[i];
    return sum;
}

static double perplexity(const struct scoring *scoring) {
    return kvad_accuracy_perplexity(total_logprob(scoring), scoring->n - 1);
}

static void piece_of(const struct scoring *scoring, size_t i, const char **bytes, size_t *size) {
    *bytes = "";
    *size = 0;
    if (scoring->session->tokenizer)
        kvad_tokenizer_piece(scoring->session->tokenizer, scoring->ids[i], bytes, size, NULL);
}

static int print_json(const struct scoring *scoring) {
    json_t *logprobs = json_array(), *pieces = json_array();
    int failed = !logprobs || !pieces;
    for (size_t i = 0; i < scoring->n && !failed; i++) {
        const char *bytes;
        size_t size;
        piece_of(scoring, i, &bytes, &size);
        failed |= json_array_append_new(logprobs, cli_json_number(scoring->logprobs[i]));
        failed |= json_array_append_new(pieces, cli_json_string(bytes, size));
    }
    json_t *object = json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:o, s:s}", "schema", 1, "ids",
        cli_json_ids(scoring->ids, scoring->n), "pieces", pieces, "logprobs", logprobs,
        "total_logprob", cli_json_number(total_logprob(scoring)), "perplexity",
        cli_json_number(perplexity(scoring)), "cache",
        kvad_cache_policy_name((enum kvad_cache_policy)scoring->session->settings->cache));
    if (scoring->against)
        failed |= json_object_set_new(object, "against", cli_against_json(scoring->against));
    if (!failed) return cli_json_print(object);
    json_decref(object);
    return cli_json_print(NULL);
}

static int print_table(const struct scoring *scoring) {
    puts("position      id    log p  piece");
    for (size_t i = 0; i < scoring->n; i++) {
        const char *bytes;
        size_t size;
        piece_of(scoring, i, &bytes, &size);
        printf("%8zu %7d ", i, scoring->ids[i]);
        if (i)
            printf("%8.4f  ", scoring->logprobs[i]);
        else
            printf("%8s  ", "-");
        cli_print_escaped(stdout, bytes, size);
        putchar('\n');
    }
    if (scoring->n > 1)
        printf("\nperplexity %.4f, log p %.4f over %zu tokens\n", perplexity(scoring),
               total_logprob(scoring), scoring->n - 1);
    if (scoring->against) cli_against_print(scoring->against);
    return cli_flush_output();
}

static int check_prompt(const struct cli_prompt *prompt, const struct cli_session *session) {
    if (prompt->n == 0)
        return cli_usage_error(&cli_score, "the text is empty: there is nothing to score");
    uint32_t n_ctx = cli_session_n_ctx(session);
    if (prompt->n <= n_ctx) return CLI_EXIT_OK;
    cli_say("the text has %zu tokens and the context only %u; score it in parts", prompt->n, n_ctx);
    return CLI_EXIT_CONTEXT;
}

/* A packed file has its weights in one type. */
static int check_against(const struct cli_session *session) {
    const struct cli_settings *settings = session->settings;
    if (settings->against < 0 || !session->info.is_packed ||
        (int)session->info.weights == settings->against)
        return CLI_EXIT_OK;
    const char *wanted = kvad_weight_type_name((enum kvad_weight_type)settings->against);
    const char *packed = kvad_weight_type_name(session->info.weights);
    cli_say("--against %s: %s is packed in %s and has no other weights; score the model that it "
            "was packed from, with --weights %s",
            wanted, settings->arguments.items[0], packed, packed);
    return CLI_EXIT_UNSUPPORTED;
}

static int score(struct cli_session *session, const struct cli_prompt *prompt) {
    struct cli_against against = {0};
    bool compares = session->settings->against >= 0;
    struct scoring scoring = {.session = session,
                              .ids = prompt->ids,
                              .n = prompt->n,
                              .against = compares ? &against : NULL};
    int status = compute(&scoring);
    if (status == CLI_EXIT_OK)
        status = session->settings->json ? print_json(&scoring) : print_table(&scoring);
    if (compares) cli_against_close(&against);
    kvad_sequence_destroy(&scoring.sequence);
    free(scoring.logits);
    free(scoring.logprobs);
    free(scoring.hidden);
    free(scoring.hidden_all);
    return status;
}

static int run(const struct cli_settings *settings) {
    struct cli_session session = {0};
    struct cli_prompt prompt = {0};
    cli_catch_interrupt();
    int status = cli_prompt_read(&prompt, settings, &cli_score, false);
    if (status == CLI_EXIT_OK) status = cli_session_load(&session, settings);
    if (status == CLI_EXIT_OK) status = cli_prompt_encode(&prompt, &session);
    if (status == CLI_EXIT_OK) status = check_prompt(&prompt, &session);
    if (status == CLI_EXIT_OK) status = check_against(&session);
    if (status == CLI_EXIT_OK) status = score(&session, &prompt);
    cli_prompt_deinit(&prompt);
    cli_session_deinit(&session);
    return status;
}

static const struct cli_example examples[] = {
    {"kvad score gpt2 -p 'The cat sat on the mat.'",
     "a table of tokens and their log-probabilities"},
    {"kvad score models/shakespeare-char -f play.txt --json", "the same numbers as JSON"},
    {"kvad score gpt2 -f text.txt --weights q8 --against f32", "what int8 weights cost"},
    {"kvad score gpt2 --ids 464,3797,3332 --logits logits.npy --cache none",
     "the logits computed without a cache; every other cache gives the same file"},
    {0},
};

const struct cli_command cli_score = {
    .name = "score",
    .summary = "log-probability of every token of a text",
    .synopsis = "MODEL [-p TEXT | -f FILE | --ids LIST] [options]",
    .description = "The log-probability (natural) of each token given those before it, and the "
                   "perplexity of the "
                   "text. The first token has none. The numbers are the same on every cache, "
                   "chunk, thread count "
                   "and kernel level, to the last bit of the logits. The text comes from -p, -f, "
                   "--ids or a pipe.",
    .examples = examples,
    .groups = groups,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
