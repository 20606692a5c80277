/* Text made from the option tables: help, man pages, completion scripts. All goes to stdout and
 * needs no model. */
#ifndef KVAD_CLI_PAGES_H
#define KVAD_CLI_PAGES_H

#include "cli/options.h"

/* What kvad itself accepts, for all three. */
struct cli_main_option {
    const char *name;
    char letter;
    const char *value; /* NULL: none */
    const char *help;
};
extern const struct cli_main_option cli_main_options[]; /* ended by a NULL name */
extern const struct cli_example cli_main_examples[];    /* ended by a NULL command */
extern const char cli_about[];                          /* paragraphs */
extern const char cli_model_text[];                     /* what MODEL may be */
extern const char cli_environment_text[];

struct cli_exit_text {
    int code;
    const char *text;
};
extern const struct cli_exit_text cli_exit_texts[]; /* ended by a NULL text */

void cli_print_help(const struct cli_command *command);
/** Help of kvad itself; a short one for a call without arguments. */
void cli_print_main_help(bool is_short);
void cli_print_version(void);

/** Manual page in roff: of a command, or of kvad itself for NULL. */
void cli_print_man(const struct cli_command *command);

/** Script for "bash", "zsh" or "fish"; false for another name. */
bool cli_print_completion(const char *shell);

/** What help calls an option's value into `out`: its name, or its choices as a|b|c. Empty for none.
 */
enum { CLI_VALUE_SIZE = 64 };
void cli_option_value_text(const struct cli_option *option, char out[CLI_VALUE_SIZE]);

/** Help of an option with its choices and its initial value into `out`. */
enum { CLI_HELP_SIZE = 512 };
void cli_option_help_text(const struct cli_option *option, char out[CLI_HELP_SIZE]);

#endif
