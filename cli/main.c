/* kvad: finds the subcommand and hands the rest of the line to it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/pages.h"
#include "cli/streams.h"
#include "cli/suggest.h"

const struct cli_command *const cli_commands[] = {
    &cli_generate, &cli_score, &cli_tokenize, &cli_inspect, &cli_pack,
    &cli_verify,   &cli_bench, &cli_memory,   &cli_lab,     NULL};

const struct cli_command *cli_command_find(const char *name) {
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if (strcmp((*c)->name, name) == 0) return *c;
    return NULL;
}

static int unknown_word(const char *word) {
    struct cli_suggestion nearest;
    bool is_option = word[0] == '-';
    const char *name = is_option ? word + strspn(word, "-") : word;
    cli_suggestion_start(&nearest, name, strlen(name));
    for (const struct cli_command *const *c = cli_commands; *c && !is_option; c++)
        cli_suggestion_offer(&nearest, (*c)->name, strlen((*c)->name), (*c)->name);
    for (const struct cli_main_option *o = cli_main_options; o->name && is_option; o++)
        cli_suggestion_offer(&nearest, o->name, strlen(o->name), o->name);
    const char *best = cli_suggestion_best(&nearest);
    if (best)
        return cli_usage_error(NULL, "unknown %s '%.80s'; did you mean '%s%s'?",
                               is_option ? "option" : "command", word, is_option ? "--" : "", best);
    if (is_option)
        return cli_usage_error(NULL, "unknown option '%.80s' (options follow the command)", word);
    return cli_usage_error(NULL, "unknown command '%.80s'", word);
}

static int print_man(const char *name) {
    const struct cli_command *command = name ? cli_command_find(name) : NULL;
    if (name && !command) return unknown_word(name);
    cli_print_man(command);
    return CLI_EXIT_OK;
}

static int print_completion(const char *shell) {
    if (shell && cli_print_completion(shell)) return CLI_EXIT_OK;
    return cli_usage_error(NULL, "--completion needs bash, zsh or fish");
}

/* "--man=x" and "--man x"; NULL if `argument` is another option, "" if the value is the next word.
 */
static const char *value_of(const char *argument, const char *name) {
    size_t size = strlen(name);
    if (strncmp(argument, name, size) != 0) return NULL;
    if (argument[size] == '=') return argument + size + 1;
    return argument[size] ? NULL : "";
}

static bool is_one_of(const char *argument, const char *a, const char *b) {
    return strcmp(argument, a) == 0 || strcmp(argument, b) == 0;
}

/* A line that begins with an option of kvad itself. */
static int run_main_option(int argc, char **argv) {
    const char *value, *next = argc > 2 ? argv[2] : NULL;
    if (is_one_of(argv[1], "--version", "-V")) {
        cli_print_version();
        return CLI_EXIT_OK;
    }
    if ((value = value_of(argv[1], "--man"))) return print_man(*value ? value : next);
    if ((value = value_of(argv[1], "--completion"))) return print_completion(*value ? value : next);
    return unknown_word(argv[1]);
}

/* Help asked for before any command is known: "kvad --help generate", "kvad -x --help". */
static bool main_help(int argc, char **argv) {
    static const struct cli_group *const none[] = {NULL};
    static const struct cli_command nothing = {.groups = none};
    if (argc > 1 && argv[1][0] != '-' && strcmp(argv[1], "help") != 0) return false;
    bool is_help_word = argc > 1 && strcmp(argv[1], "help") == 0;
    if (!is_help_word && !cli_wants_help(&nothing, argc - 1, argv + 1)) return false;
    for (int i = 1; i < argc; i++) {
        const struct cli_command *command = cli_command_find(argv[i]);
        if (!command) continue;
        cli_print_help(command);
        return true;
    }
    cli_print_main_help(false);
    return true;
}

static int run_command(const struct cli_command *command, int argc, char **argv) {
    if (cli_wants_help(command, argc, argv)) {
        cli_print_help(command);
        return CLI_EXIT_OK;
    }
    struct cli_settings settings;
    int status = cli_options_parse(command, argc, argv, &settings);
    if (status == CLI_EXIT_OK) status = cli_outputs_check(&settings);
    if (status == CLI_EXIT_OK && settings.output && !command->has_own_output)
        status = cli_outputs_redirect(settings.output);
    if (status == CLI_EXIT_OK) status = command->run(&settings);
    status = cli_outputs_finish(status);
    cli_settings_deinit(&settings);
    return status;
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        cli_print_main_help(true);
        return CLI_EXIT_OK;
    }
    if (main_help(argc, argv)) return CLI_EXIT_OK;
    if (argv[1][0] == '-') return run_main_option(argc, argv);
    const struct cli_command *command = cli_command_find(argv[1]);
    if (!command) return unknown_word(argv[1]);
    return run_command(command, argc - 2, argv + 2);
}

int main(int argc, char **argv) {
    cli_streams_init();
    int status = run(argc, argv);
    return cli_streams_finish(status);
}
