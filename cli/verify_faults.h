/* kvad verify --faults: which checks catch which faults. */
#ifndef KVAD_CLI_VERIFY_FAULTS_H
#define KVAD_CLI_VERIFY_FAULTS_H

#include "cli/options.h"

/** Run every check with every seeded fault and print the table, or JSON. Returns an exit code: 1
 * if a fault is caught by fewer than two checks, is never reached, or brings the engine down. A
 * program without the faults says so. */
int cli_verify_faults(const struct cli_settings *settings);

#endif
