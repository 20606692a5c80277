/* kvad generate --batch: many prompts at once, one JSON object a line in and out. */
#ifndef KVAD_CLI_BATCH_H
#define KVAD_CLI_BATCH_H

#include "cli/session.h"

/** Run all requests of settings->batch with a loaded model. Each line is a string, or an object
 * with "prompt" or "ids" and, if it likes, "max_tokens", "seed", "priority" and "salt". Results go
 * to stdout in the order of the lines; with settings->show_cache the blocks of the cache are drawn
 * on stderr after every step. Returns an exit code. */
int cli_batch_run(struct cli_session *session);

#endif
