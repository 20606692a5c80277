/* The options of kvad generate: a table apart from what it does. */
#ifndef KVAD_CLI_GENERATE_OPTIONS_H
#define KVAD_CLI_GENERATE_OPTIONS_H

#include "cli/options.h"

extern const struct cli_group *const cli_generate_groups[]; /* ended by NULL */

#endif
