/* The subcommands; each is defined in the file of its name. */
#ifndef KVAD_CLI_COMMANDS_H
#define KVAD_CLI_COMMANDS_H

#include "cli/options.h"

extern const struct cli_command cli_generate, cli_score, cli_tokenize, cli_inspect, cli_pack,
    cli_bench, cli_memory, cli_verify, cli_lab;

/** All commands in the order of the help, ended by NULL. */
extern const struct cli_command *const cli_commands[];

/** The command of this name, or NULL. */
const struct cli_command *cli_command_find(const char *name);

#endif
