#include "cli/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/options.h"

enum { READ_BYTES = 1 << 16, LONGEST_TEXT = 1 << 28 };

/* What a signal handler may touch; the only mutable globals of the program. */
static volatile sig_atomic_t interrupted;
static _Atomic(struct kvad_engine *) target;
static bool output_has_failed;

void cli_say(const char *format, ...) {
    va_list arguments;
    fputs("kvad: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

void cli_streams_init(void) {
    /* With a standard stream closed, the next file opened would take its number, and messages would
     * land in a model or a result. A read-only /dev/null in its place makes writing fail instead.
     */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF && open("/dev/null", O_RDONLY) != fd) break;
    signal(SIGPIPE, SIG_DFL);
}

int cli_flush_output(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_EXIT_OK;
    int reason = errno;
    if (cli_is_interrupted()) return CLI_EXIT_INTERRUPTED; /* it broke into the writing */
    if (!output_has_failed) cli_say("cannot write the result: %s", strerror(reason));
    output_has_failed = true;
    return CLI_EXIT_FAILURE;
}

int cli_streams_finish(int status) {
    int written = cli_flush_output();
    if (status == CLI_EXIT_OK) status = written;
    return status == CLI_EXIT_INTERRUPTED && interrupted ? 128 + interrupted : status;
}

/* Editors say with it that a text is UTF-8; it is no part of the text. */
static void drop_mark(struct cli_text *text) {
    static const char mark[] = {'\xEF', '\xBB', '\xBF'};
    if (text->size < sizeof mark || memcmp(text->bytes, mark, sizeof mark) != 0) return;
    text->size -= sizeof mark;
    memmove(text->bytes, text->bytes + sizeof mark, text->size);
}

static int read_all(FILE *file, const char *name, struct cli_text *text) {
    char block[READ_BYTES];
    /* No read after the end: on a terminal it would wait for a second Ctrl-D. */
    while (!feof(file) && !ferror(file)) {
        size_t n = fread(block, 1, sizeof block, file);
        if (text->size + n > LONGEST_TEXT) {
            cli_say("%s is longer than %d MiB", name, LONGEST_TEXT >> 20);
            return CLI_EXIT_FAILURE;
        }
        if (!cli_text_append(text, block, n)) {
            cli_say("out of memory: reading %s", name);
            return CLI_EXIT_MEMORY;
        }
    }
    if (!ferror(file)) drop_mark(text);
    if (!ferror(file)) return CLI_EXIT_OK;
    if (cli_is_interrupted()) return CLI_EXIT_INTERRUPTED;
    cli_say("cannot read %s: %s", name, strerror(errno));
    return CLI_EXIT_FAILURE;
}

int cli_read_file(const char *path, struct cli_text *text) {
    if (strcmp(path, "-") == 0) {
        if (isatty(STDIN_FILENO)) cli_say("reading text from the terminal; Ctrl-D ends it");
        return read_all(stdin, "standard input", text);
    }
    FILE *file = fopen(path, "rb");
    if (!file) {
        cli_say("cannot read %s: %s", path, strerror(errno));
        return CLI_EXIT_FAILURE;
    }
    int status = read_all(file, path, text);
    fclose(file);
    return status;
}

static void on_interrupt(int number) {
    interrupted = number;
    struct kvad_engine *engine = atomic_load(&target);
    if (engine) kvad_engine_interrupt(engine);
}

void cli_catch_interrupt(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        /* A shell that starts us in the background ignores Ctrl-C for us, nohup the hangup: leave
         * it so. */
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        sigaction(signals[i], &action, NULL);
    }
}

bool cli_is_interrupted(void) {
    return interrupted != 0;
}

void cli_interrupt_target(struct kvad_engine *engine) {
    atomic_store(&target, engine);
    if (engine && interrupted) kvad_engine_interrupt(engine);
}
