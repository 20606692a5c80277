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

/* Table 3-7 of the Unicode standard: the second byte alone has narrower ranges. */
static bool is_continuation(unsigned char lead, int index, unsigned char byte) {
    unsigned char low = 0x80, high = 0xBF;
    if (index == 1) {
        if (lead == 0xE0) low = 0xA0;
        if (lead == 0xED) high = 0x9F;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
    }
    return byte >= low && byte <= high;
}

int cli_utf8_next(const char *bytes, size_t size) {
    unsigned char lead = (unsigned char)bytes[0];
    if (lead < 0x80) return 1;
    int length = lead >= 0xC2 && lead <= 0xDF ? 2 : (lead & 0xF0) == 0xE0 ? 3 : 4;
    if (lead < 0xC2 || lead > 0xF4) return -1;
    for (int i = 1; i < length; i++)
        if ((size_t)i >= size || !is_continuation(lead, i, (unsigned char)bytes[i])) return -i;
    return length;
}

bool cli_text_append_utf8(struct cli_text *text, const char *bytes, size_t size) {
    while (size) {
        int length = cli_utf8_next(bytes, size);
        size_t used = (size_t)(length < 0 ? -length : length);
        bool ok = length < 0 ? cli_text_append(text, "\xEF\xBF\xBD", 3)
                             : cli_text_append(text, bytes, used);
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
        size_t used = kvad_utf8_decode(bytes, size, &c);
        bool is_whole = c != KVAD_UTF8_INVALID && c != KVAD_UTF8_INCOMPLETE;
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
