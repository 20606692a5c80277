/* kvad pack: a model in the engine's own layout, in one file. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/streams.h"

static const struct cli_group *const groups[] = {&cli_model_group, &cli_output_group, NULL};

/* What was written: one line for people on stderr, or an object. */
static int report(const struct cli_session *session) {
    const struct cli_settings *settings = session->settings;
    const char *weights = kvad_weight_type_name(session->info.weights);
    if (settings->json)
        return cli_json_print(json_pack("{s:i, s:s, s:s, s:I, s:b}", "schema", 1, "file",
                                        settings->output, "weights", weights, "weight_bytes",
                                        (json_int_t)session->info.weight_bytes, "tokenizer",
                                        session->tokenizer != NULL));
    if (settings->quiet) return CLI_EXIT_OK;
    char size[CLI_SIZE_TEXT];
    cli_format_size(session->info.weight_bytes, size);
    cli_say("%s: %s of weights in %s%s", settings->output, size, weights,
            session->tokenizer ? ", tokenizer included" : "; no tokenizer was found");
    return CLI_EXIT_OK;
}

static int run(const struct cli_settings *settings) {
    if (!settings->output) return cli_usage_error(&cli_pack, "-o FILE is missing");
    struct cli_session session;
    struct kvad_error err = {0};
    int code = cli_session_load(&session, settings);
    if (code == CLI_EXIT_OK && session.info.is_packed) {
        cli_say("%s: is a packed file already: copy it, or pack the model that it was made from",
                settings->arguments.items[0]);
        code = CLI_EXIT_UNSUPPORTED;
    }
    if (code == CLI_EXIT_OK && kvad_model_pack(session.model, settings->output, &err) != KVAD_OK) {
        code = cli_fail(&err);
        /* What failed is the result, not the model. */
        if (err.status == KVAD_ERR_IO) code = CLI_EXIT_FAILURE;
    }
    if (code == CLI_EXIT_OK) code = report(&session);
    cli_session_deinit(&session);
    return code;
}

static const struct cli_example examples[] = {
    {"kvad pack gpt2 --weights q8 -o gpt2-q8.kvad",
     "a quarter of the bytes, loaded in milliseconds"},
    {"kvad generate gpt2-q8.kvad -p 'Once'", "used like any other model"},
    {"kvad inspect gpt2-q8.kvad --verify", "check that no byte has changed"},
    {0},
};

const struct cli_command cli_pack = {
    .name = "pack",
    .summary = "write a model as one file that is mapped, not read",
    .synopsis = "MODEL -o FILE [options]",
    .description =
        "Converts the weights once, and writes them as they lie in memory, with the configuration "
        "and the tokenizer's files. Such a file is opened by mapping it; several processes share "
        "its memory. Loading does not read all of it, so a damaged weight is found by kvad inspect "
        "--verify "
        "alone. It fits this version of the format and this byte order; when one of them "
        "changes it is refused, so keep the original.",
    .examples = examples,
    .groups = groups,
    .min_arguments = 1,
    .max_arguments = 1,
    .has_own_output = true,
    .run = run,
};
