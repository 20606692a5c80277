/* Files that a command writes: none of them may be a file that it reads, and none replaces a good
 * one before there is a result. */
#ifndef KVAD_CLI_OUTPUTS_H
#define KVAD_CLI_OUTPUTS_H

#include "cli/options.h"

/** Refuse (CLI_EXIT_USAGE) an output that is the model, a file in the model's folder, another
 * input, or the same file as another output. Links are seen through. */
int cli_outputs_check(const struct cli_settings *settings);

/** Let stdout write beside the file `path` ("-" leaves stdout as it is); returns an exit code. What
 * is no regular file (a pipe, /dev/full) is written directly. */
int cli_outputs_redirect(const char *path);
/** After the command: put what was written in place of `path`, or, when it failed and wrote
 * nothing, leave the old file. Returns the exit code. */
int cli_outputs_finish(int status);

#endif
