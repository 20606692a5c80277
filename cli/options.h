/* The option tables. One table per command drives parsing, the KVAD_ variables, --help, the man
 * pages and the completion scripts, so that none of them can differ from the others. */
#ifndef KVAD_CLI_OPTIONS_H
#define KVAD_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/settings.h"

/* Exit codes of kvad. 130 as shells report a program ended by Ctrl-C; SIGTERM and SIGHUP make it
 * 143 and 129 at the end (cli_streams_finish()). */
enum cli_exit {
    CLI_EXIT_OK = 0,
    CLI_EXIT_FAILURE = 1,
    CLI_EXIT_USAGE = 2,
    CLI_EXIT_MODEL = 3,
    CLI_EXIT_UNSUPPORTED = 4,
    CLI_EXIT_MEMORY = 5,
    CLI_EXIT_CONTEXT = 6,
    CLI_EXIT_INTERRUPTED = 130
};

enum cli_kind {              /* type of the value in struct cli_settings */
                CLI_FLAG,    /* bool */
                CLI_COUNT,   /* uint64_t: how often it was given */
                CLI_TEXT,    /* const char *, borrowed from argv or the environment */
                CLI_FILE,    /* the same; completed with file names */
                CLI_INTEGER, /* uint64_t */
                CLI_NUMBER,  /* double */
                CLI_SIZE,    /* uint64_t bytes; 512M, 2GiB, 1.5G */
                CLI_CHOICE,  /* int: value of the chosen name */
                CLI_TEXTS,   /* struct cli_texts; repeatable */
                CLI_IDS,     /* struct cli_ids; separated by commas or white space; repeatable */
                CLI_NUMBERS, /* struct cli_numbers; separated by commas */
                CLI_CHOICES, /* struct cli_numbers: values of names separated by commas */
                CLI_BIASES,  /* struct cli_biases; ID=VALUE,...; repeatable */
                CLI_STAGES   /* unsigned char [KVAD_STAGE_COUNT]; names separated by commas */
};

struct cli_choice {
    const char *name; /* NULL ends a list */
    int value;
};

struct cli_option {
    const char *name; /* without dashes; the variable is KVAD_ and the name in capitals */
    char letter;      /* short form, or 0 */
    enum cli_kind kind;
    size_t offset;       /* of the value in struct cli_settings */
    const char *value;   /* what help calls the value; NULL: the choices, or there is none */
    const char *initial; /* value where none is given, in the form a user would write; NULL: zero */
    double min, max;     /* range of INTEGER, NUMBER, SIZE and of each of NUMBERS */
    const struct cli_choice *choices; /* of CHOICE, CHOICES and STAGES */
    const char
        *known_as;     /* names in other programs, separated by spaces: only to suggest this one */
    const char *rival; /* option that excludes it; typed, it wins over this one's variable */
    bool no_variable;  /* has no KVAD_ variable: it belongs to one call alone */
    const char *help;  /* sentence without a capital and a full stop */
};

struct cli_group {
    const char *title;
    const struct cli_option *options;
    size_t n_options;
};

struct cli_example {
    const char *command, *text;
};

struct cli_command {
    const char *name;
    const char *summary;                             /* one line */
    const char *synopsis;                            /* what follows "kvad NAME" */
    const char *description;                         /* paragraphs separated by an empty line */
    const struct cli_example *examples;              /* ended by a NULL command */
    const struct cli_group *const *groups;           /* ended by NULL */
    size_t min_arguments, max_arguments;             /* MODEL included */
    int (*run)(const struct cli_settings *settings); /* returns an exit code */
    bool has_own_output; /* -o names a file that the command itself writes */
};

/* Terse initialisers for the tables. */
#define CLI_AT(field)       offsetof(struct cli_settings, field)
#define CLI_COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/** The index-th option of a command over all its groups; NULL after the last. */
const struct cli_option *cli_command_option(const struct cli_command *command, size_t index);

/** Name of an option's variable into `out` ("KVAD_TOP_K"). */
enum { CLI_VARIABLE_SIZE = 64 };
void cli_option_variable(const struct cli_option *option, char out[CLI_VARIABLE_SIZE]);

bool cli_option_takes_value(const struct cli_option *option);

/** Whether -h or --help stands where an option can stand, whatever else the line holds. */
bool cli_wants_help(const struct cli_command *command, int argc, char **argv);

/** Fill `settings` from the arguments after the command's name, then from KVAD_ variables, then
 * from the table. On failure one line has gone to stderr. cli_settings_deinit() follows in any
 * case.
 *  @return CLI_EXIT_OK, CLI_EXIT_USAGE or CLI_EXIT_MEMORY */
int cli_options_parse(const struct cli_command *command, int argc, char **argv,
                      struct cli_settings *settings);

/** Parse one value into `settings`. `why` gets the reason of a failure: "'x' is not a number".
 *  @return CLI_EXIT_OK, CLI_EXIT_USAGE or CLI_EXIT_MEMORY */
int cli_value_parse(const struct cli_option *option, const char *text,
                    struct cli_settings *settings, char *why, size_t why_size);

/** How an option came to its value, for messages: "--kv", or "KVAD_KV" if a variable set it.
 *  @return out */
const char *cli_option_shown(const struct cli_settings *settings, const char *name,
                             char out[CLI_VARIABLE_SIZE]);

/* Options without an effect on what the line asks for. */
struct cli_stray {
    bool is_stray;
    const char *options;        /* names separated by spaces */
    const char *before, *after; /* what the message says around "--name" */
};

/** Usage error for the first stray option that was typed. What only a variable set is passed over:
 * it is for every call, and this one has no use for it. */
int cli_refuse_strays(const struct cli_settings *settings, const struct cli_stray *strays,
                      size_t n);

/** "usage: ..." to stderr with the way to the help; returns CLI_EXIT_USAGE. `command` may be NULL.
 */
int cli_usage_error(const struct cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
