/* kvad tokenize: text to ids and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/streams.h"

static const struct cli_option text_options[] = {
    {.name = "prompt",
     .letter = 'p',
     .kind = CLI_TEXT,
     .offset = CLI_AT(prompt),
     .value = "TEXT",
     .known_as = "text",
     .no_variable = true,
     .help = "the text, as in the other commands"},
    {.name = "file",
     .letter = 'f',
     .kind = CLI_FILE,
     .offset = CLI_AT(file),
     .value = "FILE",
     .no_variable = true,
     .help = "the text of FILE, every byte of it but a byte order mark at its head; - is standard "
             "input"},
    {.name = "decode",
     .letter = 'd',
     .kind = CLI_FLAG,
     .offset = CLI_AT(decode),
     .known_as = "detokenize reverse",
     .no_variable = true,
     .help = "the other way: TEXT is a list of ids, the result the bytes that they stand for"},
    {.name = "special",
     .kind = CLI_FLAG,
     .offset = CLI_AT(special),
     .help = "special text such as <|endoftext|> becomes its id; otherwise it is plain text"},
    {.name = "tokenizer",
     .kind = CLI_FILE,
     .offset = CLI_AT(tokenizer),
     .value = "PATH",
     .known_as = "vocab meta",
     .help = "this tokenizer instead of the model's"},
};
static const struct cli_group text_group = {"Text", text_options, CLI_COUNT_OF(text_options)};
static const struct cli_group *const groups[] = {&text_group, &cli_output_group, NULL};

/* The text in one of its four places into prompt->text. */
static int read_text(struct cli_prompt *prompt, const struct cli_settings *settings) {
    struct cli_settings source = {.prompt = settings->prompt, .file = settings->file};
    if (settings->arguments.n > 1) {
        const char *argument = settings->arguments.items[1];
        if (source.prompt || source.file)
            return cli_usage_error(&cli_tokenize, "TEXT, -p and -f exclude each other");
        if (strcmp(argument, "-") == 0)
            source.file = argument;
        else
            source.prompt = argument;
    }
    return cli_prompt_read(prompt, &source, &cli_tokenize, false);
}

/* The model's own tokenizer. A folder or a tokenizer's file is opened at once; only for another
 * file must the model say where its tokenizer is. */
static int open_tokenizer(struct cli_session *session, const struct cli_settings *settings,
                          struct kvad_tokenizer **tokenizer) {
    struct kvad_error err = {0};
    const char *path = settings->tokenizer ? settings->tokenizer : settings->arguments.items[0];
    if (kvad_tokenizer_open(path, NULL, tokenizer, &err) == KVAD_OK) return CLI_EXIT_OK;
    if (settings->tokenizer) return cli_fail(&err);
    int status = cli_session_load(session, settings);
    if (status != CLI_EXIT_OK) return status;
    if (!session->tokenizer) {
        cli_say_no_tokenizer(session, "there is nothing to tokenize with");
        return CLI_EXIT_MODEL;
    }
    *tokenizer = kvad_tokenizer_retain(session->tokenizer);
    return CLI_EXIT_OK;
}

/* The text as a list of ids, parsed as --ids is. */
static int parse_ids(struct cli_prompt *prompt) {
    static const struct cli_option ids_option = {
        .name = "decode", .kind = CLI_IDS, .offset = CLI_AT(ids)};
    struct cli_settings list = {0};
    char why[256];
    if (!cli_text_append(&prompt->text, "", 1)) return cli_fail_memory("the ids");
    if (strlen(prompt->text.bytes) + 1 != prompt->text.size)
        return cli_usage_error(&cli_tokenize, "--decode: the list of ids holds a NUL byte");
    int status = cli_value_parse(&ids_option, prompt->text.bytes, &list, why, sizeof why);
    prompt->ids = list.ids.items;
    prompt->n = list.ids.n;
    if (status == CLI_EXIT_MEMORY) return cli_fail_memory("the ids");
    if (status != CLI_EXIT_OK) return cli_usage_error(&cli_tokenize, "--decode: %s", why);
    return CLI_EXIT_OK;
}

/* Every piece one after the other: what the ids decode to. */
static int join_pieces(const struct kvad_tokenizer *tokenizer, const struct cli_prompt *prompt,
                       struct cli_text *text) {
    struct kvad_error err = {0};
    for (size_t i = 0; i < prompt->n; i++) {
        const char *bytes;
        size_t size;
        if (kvad_tokenizer_piece(tokenizer, prompt->ids[i], &bytes, &size, &err) != KVAD_OK)
            return cli_fail(&err);
        if (!cli_text_append(text, bytes, size)) return cli_fail_memory("the decoded text");
    }
    return CLI_EXIT_OK;
}

static int print_json(const struct kvad_tokenizer *tokenizer, const struct cli_prompt *prompt,
                      const struct cli_text *text) {
    json_t *pieces = json_array();
    int failed = !pieces;
    for (size_t i = 0; i < prompt->n && !failed; i++) {
        const char *bytes = "";
        size_t size = 0;
        kvad_tokenizer_piece(tokenizer, prompt->ids[i], &bytes, &size, NULL);
        failed = json_array_append_new(pieces, cli_json_string(bytes, size));
    }
    json_t *object =
        json_pack("{s:i, s:o, s:o, s:o}", "schema", 1, "ids", cli_json_ids(prompt->ids, prompt->n),
                  "pieces", pieces, "text", cli_json_string(text->bytes, text->size));
    if (!failed) return cli_json_print(object);
    json_decref(object);
    return cli_json_print(NULL);
}

static int print_table(const struct kvad_tokenizer *tokenizer, const struct cli_prompt *prompt) {
    for (size_t i = 0; i < prompt->n; i++) {
        const char *bytes = "";
        size_t size = 0;
        kvad_tokenizer_piece(tokenizer, prompt->ids[i], &bytes, &size, NULL);
        printf("%d\t", prompt->ids[i]);
        cli_print_escaped(stdout, bytes, size);
        putchar('\n');
    }
    return cli_flush_output();
}

static int print_result(const struct kvad_tokenizer *tokenizer, const struct cli_prompt *prompt,
                        const struct cli_settings *settings) {
    struct cli_text text = {0};
    int status = join_pieces(tokenizer, prompt, &text);
    if (status == CLI_EXIT_OK && settings->json)
        status = print_json(tokenizer, prompt, &text);
    else if (status == CLI_EXIT_OK && settings->decode)
        cli_text_print(&text, 0);
    else if (status == CLI_EXIT_OK)
        status = print_table(tokenizer, prompt);
    cli_text_deinit(&text);
    return status;
}

static int run(const struct cli_settings *settings) {
    struct cli_session session = {0};
    struct cli_prompt prompt = {0};
    struct kvad_tokenizer *tokenizer = NULL;
    struct kvad_error err = {0};
    const struct cli_stray special = {settings->decode, "special", "",
                                      " and --decode exclude each other: ids are no text"};
    cli_catch_interrupt();
    int status = cli_refuse_strays(settings, &special, 1);
    if (status == CLI_EXIT_OK) status = read_text(&prompt, settings);
    if (status == CLI_EXIT_OK && settings->decode) status = parse_ids(&prompt);
    if (status == CLI_EXIT_OK) status = open_tokenizer(&session, settings, &tokenizer);
    if (status == CLI_EXIT_OK && !settings->decode &&
        cli_encode(tokenizer, prompt.text.bytes, prompt.text.size, settings->special, &prompt.ids,
                   &prompt.n, &err) != KVAD_OK)
        status = cli_fail(&err);
    if (status == CLI_EXIT_OK) status = print_result(tokenizer, &prompt, settings);
    kvad_tokenizer_release(&tokenizer);
    cli_prompt_deinit(&prompt);
    cli_session_deinit(&session);
    return status;
}

static const struct cli_example examples[] = {
    {"kvad tokenize gpt2 'Hello, world'", "a line for each token: id, tab, text"},
    {"kvad tokenize gpt2 -f book.txt --json", "ids and pieces as JSON"},
    {"kvad tokenize gpt2 --decode '15496 11 995'", "the text of three ids"},
    {0},
};

const struct cli_command cli_tokenize = {
    .name = "tokenize",
    .summary = "text to token ids, or back",
    .synopsis = "MODEL [TEXT | -p TEXT | -f FILE | -] [options]",
    .description = "Prints the id and the text of every token; \\n, \\t, \\r, \\\\ and \\xNN stand "
                   "for what a line "
                   "cannot hold. MODEL may also be a tokenizer's own folder or file. The text is "
                   "TEXT, a file, or "
                   "standard input for - or where nothing is named.",
    .examples = examples,
    .groups = groups,
    .min_arguments = 1,
    .max_arguments = 2,
    .run = run,
};
