/* Standard input and output, and Ctrl-C. */
#ifndef KVAD_CLI_STREAMS_H
#define KVAD_CLI_STREAMS_H

#include <stdbool.h>

#include "cli/settings.h"
#include "cli/text.h"

/** Prepare the process: a closed stream stays unwritable, a reader that left ends us quietly. */
void cli_streams_init(void);
/** Flush stdout; a result that did not arrive is a failure. Returns the exit code. */
int cli_streams_finish(int status);

/** Let all that was written arrive; says on stderr, once, why it did not. Returns an exit code. */
int cli_flush_output(void);

/** The whole of a file, or of standard input for "-", without a byte order mark at its head; `text`
 * is empty before. Returns an exit code. */
int cli_read_file(const char *path, struct cli_text *text);

/** Catch the first Ctrl-C, SIGTERM or SIGHUP: cli_is_interrupted() becomes true, system calls
 * return early. A second one of its kind ends the process. */
void cli_catch_interrupt(void);
bool cli_is_interrupted(void);
/** Engine to interrupt when Ctrl-C comes; NULL before it is closed. */
void cli_interrupt_target(struct kvad_engine *engine);

/** Message for people on stderr: "kvad: ...". */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
