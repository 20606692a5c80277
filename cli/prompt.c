/* The prompt: from -p, -f, --ids or standard input, as bytes and as token ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/session.h"
#include "cli/streams.h"

int cli_prompt_read(struct cli_prompt *prompt, const struct cli_settings *settings,
                    const struct cli_command *command, bool may_be_missing) {
    int n_sources = (settings->prompt != NULL) + (settings->file != NULL) + settings->ids.is_given;
    if (n_sources > 1) return cli_usage_error(command, "-p, -f and --ids exclude each other");
    if (settings->ids.is_given) {
        const struct cli_stray special = {true, "special", "",
                                          " is for text: --ids are ids already"};
        prompt->is_given = settings->ids.n > 0;
        return cli_refuse_strays(settings, &special, 1);
    }
    int status = CLI_EXIT_OK;
    const char *file = settings->file;
    if (!settings->prompt && !file) {
        if (!isatty(STDIN_FILENO))
            file = "-";
        else if (!may_be_missing)
            return cli_usage_error(command, "needs a text: -p TEXT, -f FILE, --ids LIST or a pipe");
    }
    if (settings->prompt &&
        !cli_text_append(&prompt->text, settings->prompt, strlen(settings->prompt)))
        status = cli_fail_memory("the prompt");
    if (file) status = cli_read_file(file, &prompt->text);
    prompt->is_given = prompt->has_text = prompt->text.size > 0;
    return status;
}

enum kvad_status cli_encode(const struct kvad_tokenizer *tokenizer, const char *text, size_t size,
                            bool special, int32_t **ids, size_t *n, struct kvad_error *err) {
    unsigned flags = special ? KVAD_ENCODE_SPECIAL : 0;
    size_t capacity = size / 2 + 16, needed = capacity;
    int32_t *buffer = NULL;
    do {
        capacity = needed;
        int32_t *grown = realloc(buffer, capacity * sizeof *grown);
        enum kvad_status status =
            grown ? KVAD_OK : cli_error(err, KVAD_ERR_NO_MEMORY, "out of memory: ids of a text");
        if (grown) buffer = grown;
        if (status == KVAD_OK)
            status = kvad_tokenizer_encode(tokenizer, text ? text : "", size, flags, buffer,
                                           capacity, &needed, err);
        if (status != KVAD_OK) {
            free(buffer);
            return status;
        }
    } while (needed > capacity);
    *ids = buffer;
    *n = needed;
    return KVAD_OK;
}

enum kvad_status cli_default_ids(const struct cli_session *session, int32_t **ids, size_t *n,
                                 struct kvad_error *err) {
    int32_t eos = session->info.eos;
    if (eos < 0 && !session->tokenizer)
        return cli_error(err, KVAD_ERR_ARGUMENT,
                         "a model without a tokenizer needs a prompt of token ids");
    if (eos < 0) return cli_encode(session->tokenizer, "\n", 1, false, ids, n, err);
    *ids = malloc(sizeof **ids);
    if (!*ids) return cli_error(err, KVAD_ERR_NO_MEMORY, "out of memory: the prompt");
    **ids = eos;
    *n = 1;
    return KVAD_OK;
}

static int copy_ids(struct cli_prompt *prompt, const struct cli_ids *ids) {
    prompt->ids = malloc((ids->n + 1) * sizeof *prompt->ids);
    if (!prompt->ids) return cli_fail_memory("the ids of the prompt");
    if (ids->n) memcpy(prompt->ids, ids->items, ids->n * sizeof *prompt->ids);
    prompt->n = ids->n;
    return CLI_EXIT_OK;
}

int cli_prompt_encode(struct cli_prompt *prompt, const struct cli_session *session) {
    const struct cli_settings *settings = session->settings;
    if (settings->ids.is_given) return copy_ids(prompt, &settings->ids);
    if (!prompt->has_text) return CLI_EXIT_OK;
    if (!session->tokenizer) {
        cli_say_no_tokenizer(session, "give --ids instead of text");
        return CLI_EXIT_MODEL;
    }
    struct kvad_error err = {0};
    enum kvad_status status = cli_encode(session->tokenizer, prompt->text.bytes, prompt->text.size,
                                         settings->special, &prompt->ids, &prompt->n, &err);
    return status == KVAD_OK ? CLI_EXIT_OK : cli_fail(&err);
}

void cli_prompt_deinit(struct cli_prompt *prompt) {
    cli_text_deinit(&prompt->text);
    free(prompt->ids);
    *prompt = (struct cli_prompt){0};
}
