/* Small writers for people: growing text, byte counts, pieces of tokens. */
#ifndef KVAD_CLI_TEXT_H
#define KVAD_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes that grow; zero is an empty one. */
struct cli_text {
    char *bytes; /* [size], not NUL-terminated */
    size_t size, capacity;
};

/** Append; false when memory is out (then nothing changed). */
bool cli_text_append(struct cli_text *text, const char *bytes, size_t size);
void cli_text_deinit(struct cli_text *text);
/** Write the bytes from `first` on to stdout. */
void cli_text_print(const struct cli_text *text, size_t first);

/** Append `bytes` as valid UTF-8: each maximal part of an invalid sequence becomes one U+FFFD (the
 * Unicode standard's "substitution of maximal subparts"). False when memory is out. */
bool cli_text_append_utf8(struct cli_text *text, const char *bytes, size_t size);

/** Write `bytes` on one line: \n, \t, \r, \\ and \xNN for what is neither printable ASCII nor whole
 * UTF-8, and for controls (base/utf8.h). */
void cli_print_escaped(FILE *file, const char *bytes, size_t size);

/** "18.4 MiB" into `out`. */
enum { CLI_SIZE_TEXT = 32 };
void cli_format_size(uint64_t bytes, char out[CLI_SIZE_TEXT]);

/** Milliseconds of a clock that never goes back. */
double cli_clock_ms(void);

#endif
