/* The texts that help and man pages share. */
#include "cli/pages.h"

#include <stdio.h>
#include <string.h>

const struct cli_main_option cli_main_options[] = {
    {"help", 'h', NULL, "this text; 'kvad COMMAND --help' says more about a command"},
    {"version", 'V', NULL, "version, kernel levels of this CPU, licence"},
    {"man", 0, "[COMMAND]", "manual page in roff: kvad --man generate | man -l -"},
    {"completion", 0, "SHELL", "completion script for bash, zsh or fish"},
    {0},
};

const struct cli_example cli_main_examples[] = {
    {"kvad generate models/shakespeare-char -p 'ROMEO:'", "continue a text"},
    {"kvad score gpt2 -p 'The cat sat on the mat.'", "how likely each token is"},
    {"kvad inspect out/ckpt.pt", "what is in a file and what it would cost"},
    {"source <(kvad --completion bash)", "completion in this shell"},
    {0},
};

const char cli_about[] =
    "kvad runs GPT-2-class models on the CPU with a lossless KV cache: the logits are the same "
    "bits "
    "with the cache off or on, on any number of threads and on every kernel level.\n\n"
    "Standard output carries the result alone; messages go to standard error.";

const char cli_model_text[] =
    "MODEL is a folder, a file (ckpt.pt, model.safetensors, pytorch_model.bin, an index.json of "
    "shards) or a name in the local Hugging Face cache such as gpt2.";

const char cli_environment_text[] =
    "Every option that describes more than one call can be set by a variable: KVAD_ and its long "
    "name in capitals with _ for -, such as KVAD_THREADS=4, KVAD_TOP_K=40 or KVAD_JSON=1. An "
    "option "
    "on the command line wins. An empty variable counts as unset.";

const struct cli_exit_text cli_exit_texts[] = {
    {CLI_EXIT_OK, "success"},
    {CLI_EXIT_FAILURE, "failure"},
    {CLI_EXIT_USAGE, "wrong usage, or a value that this model cannot take"},
    {CLI_EXIT_MODEL, "the model or tokenizer cannot be read"},
    {CLI_EXIT_UNSUPPORTED, "the model or the request is not supported"},
    {CLI_EXIT_MEMORY, "out of memory"},
    {CLI_EXIT_CONTEXT, "the text is longer than the context"},
    {CLI_EXIT_INTERRUPTED, "interrupted by Ctrl-C; 143 by SIGTERM, 129 by SIGHUP"},
    {0},
};

/* Appends " text" or what fits of it. */
static void append(char *out, size_t size, const char *before, const char *text) {
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s", before, text);
}

void cli_option_value_text(const struct cli_option *option, char out[CLI_VALUE_SIZE]) {
    out[0] = 0;
    if (option->value) append(out, CLI_VALUE_SIZE, "", option->value);
    if (option->value || option->kind != CLI_CHOICE) return;
    for (const struct cli_choice *c = option->choices; c->name; c++)
        append(out, CLI_VALUE_SIZE, c == option->choices ? "" : "|", c->name);
}

void cli_option_help_text(const struct cli_option *option, char out[CLI_HELP_SIZE]) {
    out[0] = 0;
    append(out, CLI_HELP_SIZE, "", option->help);
    const char *before = option->kind == CLI_CHOICE ? " (" : ": ";
    bool lists_choices = option->choices && option->value;
    for (const struct cli_choice *c = option->choices; lists_choices && c->name; c++) {
        append(out, CLI_HELP_SIZE, before, c->name);
        before = ", ";
    }
    if (!option->initial) {
        if (lists_choices && option->kind == CLI_CHOICE) append(out, CLI_HELP_SIZE, ")", "");
        return;
    }
    append(out, CLI_HELP_SIZE, lists_choices ? "; default " : " (default ", option->initial);
    append(out, CLI_HELP_SIZE, ")", "");
}
