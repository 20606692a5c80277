/* What commands that measure and check show and heed meanwhile: a line of progress, and Ctrl-C. */
#ifndef KVAD_CLI_PROGRESS_H
#define KVAD_CLI_PROGRESS_H

#include "cli/settings.h"
#include "kvad/kvad.h"

/* A line on stderr that the next one replaces. Zero is one that is never shown. */
struct cli_progress {
    bool is_wanted; /* on a terminal, without -q */
    bool is_shown;
};
struct cli_progress cli_progress_of(const struct cli_settings *settings);
/** False once Ctrl-C came. */
bool cli_progress_show(struct cli_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void cli_progress_clear(struct cli_progress *progress);

/** Callback of the lab: the engine that Ctrl-C has to stop, or NULL. `user` is not looked at. */
void cli_engine_in_use(void *user, struct kvad_engine *engine);

/* `user` of a bench, an experiment, a trace, an account of memory. */
struct cli_measuring {
    const struct cli_settings *settings;
    const char *name; /* MODEL as the user wrote it, or the synthetic size */
    struct cli_progress progress;
};
/** Callback of the lab: "[ 40 %] what"; false after Ctrl-C. */
bool cli_measuring_report(void *user, const char *what, double done);

#endif
