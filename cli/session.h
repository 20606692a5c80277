/* A model and an engine as the settings ask for them, and the prompt in token ids. */
#ifndef KVAD_CLI_SESSION_H
#define KVAD_CLI_SESSION_H

#include "cli/options.h"
#include "cli/progress.h"
#include "cli/text.h"

struct cli_session {
    const struct cli_settings *settings;
    struct kvad_threads
        *threads; /* of the load and the engine: who first wrote weights reads them */
    struct kvad_model *model;
    struct kvad_model_info info;
    struct kvad_tokenizer *tokenizer; /* borrowed from the model, or NULL */
    struct kvad_engine *engine;
    double load_ms;
    struct cli_progress progress;
};

/** Exit code of a failed call. */
int cli_exit_code(enum kvad_status status);
/** Message on stderr; returns the exit code. An interrupt needs no message. */
int cli_fail(const struct kvad_error *err);
int cli_fail_memory(const char *what);
/** Fill *err as the library does; returns `status`. */
enum kvad_status cli_error(struct kvad_error *err, enum kvad_status status, const char *text);

/** Options for loading or inspecting MODEL. `session` receives progress; it may be NULL. */
void cli_model_options(const struct cli_settings *settings, struct cli_session *session,
                       struct kvad_model_options *options);

/** Load MODEL. Returns an exit code; cli_session_deinit() follows in any case. */
int cli_session_load(struct cli_session *session, const struct cli_settings *settings);

/** Say on stderr that MODEL has no tokenizer, hence `what`, and how to get one. */
void cli_say_no_tokenizer(const struct cli_session *session, const char *what);

/** Tokens that one sequence may hold: --ctx, at most the model's. */
uint32_t cli_session_n_ctx(const struct cli_session *session);

/** Cache bytes of one token in the types that the settings ask for. */
uint64_t cli_session_token_bytes(const struct cli_session *session);

/** Open the engine for `n_sequences` of at most `n_tokens` each (0: the whole context). */
int cli_session_open_engine(struct cli_session *session, uint32_t n_sequences, size_t n_tokens);

void cli_session_deinit(struct cli_session *session);

/* The prompt as bytes (if it came as text) and as ids. Zero is an empty one. */
struct cli_prompt {
    struct cli_text text;
    int32_t *ids; /* [n] */
    size_t n;
    bool is_given; /* false: nothing was said, or an empty text */
    bool has_text; /* `text` holds what the user gave; false for --ids */
};

/** Read -p, -f, --ids or standard input; `may_be_missing`: a terminal as input means no prompt.
 * Before a model is loaded. Returns an exit code. */
int cli_prompt_read(struct cli_prompt *prompt, const struct cli_settings *settings,
                    const struct cli_command *command, bool may_be_missing);

/** Turn the text into ids, or check the given ids. Returns an exit code. */
int cli_prompt_encode(struct cli_prompt *prompt, const struct cli_session *session);

/** Text to ids with room for all; *ids is malloc'd. */
enum kvad_status cli_encode(const struct kvad_tokenizer *tokenizer, const char *text, size_t size,
                            bool special, int32_t **ids, size_t *n, struct kvad_error *err);

/** What a model starts from where nothing is given: the end of text that separates GPT-2's training
 * texts, else a newline as nanoGPT's sample.py does. *ids is malloc'd. */
enum kvad_status cli_default_ids(const struct cli_session *session, int32_t **ids, size_t *n,
                                 struct kvad_error *err);

void cli_prompt_deinit(struct cli_prompt *prompt);

#endif
