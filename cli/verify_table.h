/* kvad verify for people. */
#ifndef KVAD_CLI_VERIFY_TABLE_H
#define KVAD_CLI_VERIFY_TABLE_H

#include "lab/verify.h"

/** Print all results to standard output. `name` is the model as the user wrote it. */
void cli_verify_print_table(const struct kvad_verify *verify, const char *name,
                            const struct kvad_model_info *info,
                            const struct kvad_verify_result *results, size_t n);

#endif
