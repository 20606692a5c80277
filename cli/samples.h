/* Runs n samples of one prompt and streams their text. */
#ifndef KVAD_CLI_SAMPLES_H
#define KVAD_CLI_SAMPLES_H

#include "cli/session.h"

struct cli_sample {
    struct kvad_request *request;
    int32_t *ids;     /* [n_ids] */
    double *logprobs; /* [n_ids] */
    size_t n_ids, capacity;
    struct cli_text text;
    size_t n_written; /* bytes of `text`, or ids where there is no tokenizer, that are on stdout */
    enum kvad_finish finish;
    struct kvad_error error; /* where finish is ERROR */
};

struct cli_generation {
    struct cli_session *session;
    const struct cli_prompt *prompt;
    struct cli_sample *samples; /* [n_samples] */
    size_t n_samples;
    bool has_result; /* the samples say how they ended, be it by an error or Ctrl-C */
    size_t front;    /* the sample that is being written; later ones wait in memory */
    double prefill_ms, decode_ms;
    size_t prefill_tokens, decode_tokens;
};

/** What the settings say of sampling, for the sample of this index. */
void cli_sampler_options(const struct cli_session *session, size_t index,
                         struct kvad_sampler_options *options);
/** What they say of a request; prompt and sampler are the caller's. */
void cli_request_options(const struct cli_session *session, struct kvad_request_options *options);

/** "length", "stop", "cancelled" or "error". */
const char *cli_finish_name(enum kvad_finish finish);

/** Generate all samples; text goes to stdout as it becomes certain, unless --json. Returns the exit
 * code; after a failure the samples hold what was there before it. */
int cli_generation_run(struct cli_generation *generation, struct cli_session *session,
                       const struct cli_prompt *prompt);
void cli_generation_deinit(struct cli_generation *generation);

/** Print the result as JSON. Returns an exit code. */
int cli_generation_print_json(const struct cli_generation *generation);
/** Print times and cache on stderr, for people. */
void cli_generation_print_timing(const struct cli_generation *generation);

#endif
