/* What kvad memory prints for people. */
#ifndef KVAD_CLI_MEMORY_REPORT_H
#define KVAD_CLI_MEMORY_REPORT_H

#include "lab/memory.h"

/** The roads to fewer bytes, with their formulas. Returns an exit code. */
int cli_memory_print_answer(const struct kvad_memory_answer *answer);

/** The measured run. Returns an exit code: a failure when a residual is not 0. */
int cli_memory_print_result(const struct kvad_memory_result *result, const char *name);

#endif
