#include "cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/streams.h"

struct cli_progress cli_progress_of(const struct cli_settings *settings) {
    return (struct cli_progress){.is_wanted = !settings->quiet && isatty(STDERR_FILENO)};
}

bool cli_progress_show(struct cli_progress *progress, const char *format, ...) {
    if (progress->is_wanted) {
        va_list arguments;
        va_start(arguments, format);
        fputs("\r\033[K", stderr);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        progress->is_shown = true;
    }
    return !cli_is_interrupted();
}

void cli_progress_clear(struct cli_progress *progress) {
    if (progress->is_shown) fputs("\r\033[K", stderr);
    progress->is_shown = false;
}

void cli_engine_in_use(void *user, struct kvad_engine *engine) {
    (void)user;
    cli_interrupt_target(engine);
}

bool cli_measuring_report(void *user, const char *what, double done) {
    struct cli_measuring *measuring = user;
    return cli_progress_show(&measuring->progress, "[%3.0f %%] %s", 100 * done, what);
}
