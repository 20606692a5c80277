#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"

bool cli_text_append(struct cli_text *text, const char *bytes, size_t size) {
    if (size > text->capacity - text->size) {
        size_t capacity = text->capacity ? text->capacity : 256;
        while (capacity - text->size < size) {
            if (capacity > SIZE_MAX / 2) return false;
            capacity *= 2;
        }
        char *grown = realloc(text->bytes, capacity);
        if (!grown) return false;
        text->bytes = grown;
        text->capacity = capacity;
    }
    if (size) memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return true;
}

void cli_text_deinit(struct cli_text *text) {
    free(text->bytes);
    *text = (struct cli_text){0};
}

void cli_text_print(const struct cli_text *text, size_t first) {
    if (first < text->size) fwrite(text->bytes + first, 1, text->size - first, stdout);
}

/* Takes the character at the head, which is whole and right where *is_whole. */
static size_t next_character(const char *bytes, size_t size, uint32_t *code_point, bool *is_whole) {
    size_t used = kvad_utf8_decode(bytes, size, code_point);
    *is_whole = *code_point != KVAD_UTF8_INVALID && *code_point != KVAD_UTF8_INCOMPLETE;
    return used;
}

bool cli_text_append_utf8(struct cli_text *text, const char *bytes, size_t size) {
    while (size) {
        uint32_t c;
        bool is_whole;
        size_t used = next_character(bytes, size, &c, &is_whole);
        bool ok = is_whole ? cli_text_append(text, bytes, used)
                           : cli_text_append(text, "\xEF\xBF\xBD", 3);
        if (!ok) return false;
        bytes += used;
        size -= used;
    }
    return true;
}

static void print_escaped_byte(FILE *file, unsigned char byte) {
    switch (byte) {
    case '\n': fputs("\\n", file); break;
    case '\t': fputs("\\t", file); break;
    case '\r': fputs("\\r", file); break;
    case '\\': fputs("\\\\", file); break;
    default:
        if (byte >= ' ' && byte < 0x7F)
            fputc(byte, file);
        else
            fprintf(file, "\\x%02X", byte);
    }
}

void cli_print_escaped(FILE *file, const char *bytes, size_t size) {
    while (size) {
        uint32_t c;
        bool is_whole;
        size_t used = next_character(bytes, size, &c, &is_whole);
        if (used > 1 && is_whole && !kvad_utf8_is_control(c))
            fwrite(bytes, 1, used, file);
        else
            for (size_t i = 0; i < used; i++)
                print_escaped_byte(file, (unsigned char)bytes[i]);
        bytes += used;
        size -= used;
    }
}

void cli_format_size(uint64_t bytes, char out[CLI_SIZE_TEXT]) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(out, CLI_SIZE_TEXT, "%u bytes", (unsigned)bytes);
        return;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1000 && unit < 5; unit++)
        value /= 1024;
    snprintf(out, CLI_SIZE_TEXT, value < 10 ? "%.2f %s" : "%.1f %s", value, units[unit]);
}

double cli_clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}
