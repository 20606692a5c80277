/* Arguments and environment against the table of one command. */
#include "cli/options.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/suggest.h"

enum { MAX_OPTIONS = 64 }; /* of one command */

struct parse {
    const struct cli_command *command;
    struct cli_settings *settings;
    int argc;
    char **argv;
    int next; /* argument to read next */
};

const struct cli_option *cli_command_option(const struct cli_command *command, size_t index) {
    for (const struct cli_group *const *group = command->groups; *group; group++) {
        if (index < (*group)->n_options) return &(*group)->options[index];
        index -= (*group)->n_options;
    }
    return NULL;
}

void cli_option_variable(const struct cli_option *option, char out[CLI_VARIABLE_SIZE]) {
    size_t n = (size_t)snprintf(out, CLI_VARIABLE_SIZE, "KVAD_%s", option->name);
    for (size_t i = 0; i < n && i < CLI_VARIABLE_SIZE; i++) {
        if (out[i] == '-') out[i] = '_';
        if (out[i] >= 'a' && out[i] <= 'z') out[i] = (char)(out[i] - ('a' - 'A'));
    }
}

bool cli_option_takes_value(const struct cli_option *option) {
    return option->kind != CLI_FLAG && option->kind != CLI_COUNT;
}

int cli_usage_error(const struct cli_command *command, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "kvad%s%s: ", command ? " " : "", command ? command->name : "");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry 'kvad%s%s --help'.\n", command ? " " : "", command ? command->name : "");
    return CLI_EXIT_USAGE;
}

/* Index of the option with this long name or letter; MAX_OPTIONS if there is none. */
static size_t find_option(const struct cli_command *command, const char *name, size_t size,
                          char letter) {
    const struct cli_option *option;
    for (size_t i = 0; (option = cli_command_option(command, i)); i++) {
        bool is_name = name && strlen(option->name) == size && !memcmp(option->name, name, size);
        if (is_name || (letter && option->letter == letter)) return i;
    }
    return MAX_OPTIONS;
}

/* In settings->typed; none for MAX_OPTIONS. */
static uint64_t bit_of(size_t index) {
    return index < MAX_OPTIONS ? UINT64_C(1) << index : 0;
}

static bool is_typed(const struct cli_settings *settings, const char *name, size_t size) {
    return settings->typed & bit_of(find_option(settings->command, name, size, 0));
}

const char *cli_option_shown(const struct cli_settings *settings, const char *name,
                             char out[CLI_VARIABLE_SIZE]) {
    if (is_typed(settings, name, strlen(name)))
        snprintf(out, CLI_VARIABLE_SIZE, "--%s", name);
    else
        cli_option_variable(&(struct cli_option){.name = name}, out);
    return out;
}

int cli_refuse_strays(const struct cli_settings *settings, const struct cli_stray *strays,
                      size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct cli_stray *stray = &strays[i];
        for (const char *name = stray->options; stray->is_stray && *name;) {
            size_t size = strcspn(name, " ");
            if (is_typed(settings, name, size))
                return cli_usage_error(settings->command, "%s--%.*s%s", stray->before, (int)size,
                                       name, stray->after);
            name += size + (name[size] == ' ');
        }
    }
    return CLI_EXIT_OK;
}

static int unknown_option(const struct cli_command *command, const char *name, size_t size) {
    struct cli_suggestion nearest;
    cli_suggestion_start(&nearest, name, size);
    const struct cli_option *option;
    for (size_t i = 0; (option = cli_command_option(command, i)); i++) {
        cli_suggestion_offer(&nearest, option->name, strlen(option->name), option->name);
        for (const char *other = option->known_as; other && *other;) {
            size_t length = strcspn(other, " ");
            cli_suggestion_offer(&nearest, other, length, option->name);
            other += length + (other[length] == ' ');
        }
    }
    const char *best = cli_suggestion_best(&nearest);
    int shown = size > 80 ? 80 : (int)size;
    if (best)
        return cli_usage_error(command, "unknown option '--%.*s'; did you mean '--%s'?", shown,
                               name, best);
    return cli_usage_error(command, "unknown option '--%.*s'", shown, name);
}

static int set_option(struct parse *parse, size_t index, const char *shown, const char *text) {
    const struct cli_option *option = cli_command_option(parse->command, index);
    char why[512];
    int status = cli_value_parse(option, text, parse->settings, why, sizeof why);
    if (status == CLI_EXIT_USAGE) return cli_usage_error(parse->command, "%s: %s", shown, why);
    if (status != CLI_EXIT_OK) fprintf(stderr, "kvad: %s: %s\n", shown, why);
    return status;
}

static void set_switch(struct parse *parse, size_t index) {
    const struct cli_option *option = cli_command_option(parse->command, index);
    void *value = (char *)parse->settings + option->offset;
    if (option->kind == CLI_FLAG) *(bool *)value = true;
    if (option->kind == CLI_COUNT) ++*(uint64_t *)value;
}

static int value_is_missing(const struct parse *parse, const char *shown, size_t index) {
    const struct cli_option *option = cli_command_option(parse->command, index);
    return cli_usage_error(parse->command, "%s needs a value: %s", shown,
                           option->value ? option->value : "one of its names");
}

/* --name, --name=value, --name value */
static int parse_long(struct parse *parse, const char *argument) {
    const char *name = argument + 2;
    size_t size = strcspn(name, "=");
    size_t index = find_option(parse->command, name, size, 0);
    if (index == MAX_OPTIONS) return unknown_option(parse->command, name, size);
    parse->settings->typed |= bit_of(index);
    char shown[CLI_VARIABLE_SIZE];
    snprintf(shown, sizeof shown, "--%.*s", (int)size, name);
    if (!cli_option_takes_value(cli_command_option(parse->command, index))) {
        if (name[size]) return cli_usage_error(parse->command, "%s takes no value", shown);
        set_switch(parse, index);
        return CLI_EXIT_OK;
    }
    if (name[size]) return set_option(parse, index, shown, name + size + 1);
    if (parse->next == parse->argc) return value_is_missing(parse, shown, index);
    return set_option(parse, index, shown, parse->argv[parse->next++]);
}

/* -q, -qv, -n5, -n 5 */
static int parse_short(struct parse *parse, const char *argument) {
    for (const char *letter = argument + 1; *letter; letter++) {
        size_t index = find_option(parse->command, NULL, 0, *letter);
        if (index == MAX_OPTIONS)
            return cli_usage_error(parse->command, "unknown option '-%c' in '%.80s'",
                                   *letter >= ' ' && *letter <= '~' ? *letter : '?', argument);
        parse->settings->typed |= bit_of(index);
        char shown[] = {'-', *letter, 0};
        if (!cli_option_takes_value(cli_command_option(parse->command, index))) {
            set_switch(parse, index);
            continue;
        }
        if (letter[1]) return set_option(parse, index, shown, letter + 1);
        if (parse->next == parse->argc) return value_is_missing(parse, shown, index);
        return set_option(parse, index, shown, parse->argv[parse->next++]);
    }
    return CLI_EXIT_OK;
}

static int add_argument(struct parse *parse, const char *argument) {
    struct cli_texts *list = &parse->settings->arguments;
    if (list->n == parse->command->max_arguments)
        return cli_usage_error(parse->command,
                               "unexpected argument '%.80s' (a text with spaces needs quotes)",
                               argument);
    const char **items = realloc(list->items, (list->n + 1) * sizeof *items);
    if (!items) {
        fprintf(stderr, "kvad: out of memory\n");
        return CLI_EXIT_MEMORY;
    }
    items[list->n++] = argument;
    list->items = items;
    return CLI_EXIT_OK;
}

static int parse_arguments(struct parse *parse) {
    bool options_ended = false;
    while (parse->next < parse->argc) {
        const char *argument = parse->argv[parse->next++];
        int status = CLI_EXIT_OK;
        if (options_ended || argument[0] != '-' || !argument[1])
            status = add_argument(parse, argument);
        else if (strcmp(argument, "--") == 0)
            options_ended = true;
        else if (argument[1] == '-')
            status = parse_long(parse, argument);
        else
            status = parse_short(parse, argument);
        if (status != CLI_EXIT_OK) return status;
    }
    return CLI_EXIT_OK;
}

/* Variables and initial values of the options that the command line left out. */
static int fill_the_rest(struct parse *parse) {
    const struct cli_option *option;
    for (size_t i = 0; (option = cli_command_option(parse->command, i)); i++) {
        if (parse->settings->typed & bit_of(i)) continue;
        if (option->rival && is_typed(parse->settings, option->rival, strlen(option->rival)))
            continue;
        char variable[CLI_VARIABLE_SIZE];
        cli_option_variable(option, variable);
        const char *text = option->no_variable ? NULL : getenv(variable);
        if (!text || !*text) text = option->initial;
        if (!text) continue;
        int status = set_option(parse, i, variable, text);
        if (status != CLI_EXIT_OK) return status;
    }
    return CLI_EXIT_OK;
}

int cli_options_parse(const struct cli_command *command, int argc, char **argv,
                      struct cli_settings *settings) {
    struct parse parse = {.command = command, .settings = settings, .argc = argc, .argv = argv};
    assert(!cli_command_option(command, MAX_OPTIONS));
    *settings = (struct cli_settings){.command = command};
    int status = parse_arguments(&parse);
    if (status == CLI_EXIT_OK) status = fill_the_rest(&parse);
    if (status != CLI_EXIT_OK) return status;
    if (settings->arguments.n < command->min_arguments)
        return cli_usage_error(command, "MODEL is missing: kvad %s %s", command->name,
                               command->synopsis);
    return CLI_EXIT_OK;
}

/* Whether the argument after `argument` is its value; then it is no option. A number or a name
 * cannot begin with -h, so that after such an option -h still asks for help. */
static bool swallows_next(const struct cli_command *command, const char *argument) {
    size_t size = strlen(argument), index;
    if (argument[1] == '-')
        index = find_option(command, argument + 2, size - 2, 0);
    else
        index = find_option(command, NULL, 0, argument[size - 1]);
    if (index == MAX_OPTIONS) return false;
    enum cli_kind kind = cli_command_option(command, index)->kind;
    return kind == CLI_TEXT || kind == CLI_TEXTS || kind == CLI_FILE;
}

bool cli_wants_help(const struct cli_command *command, int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) return true;
        bool is_option = argv[i][0] == '-' && argv[i][1];
        if (is_option && swallows_next(command, argv[i])) i++;
    }
    return false;
}
