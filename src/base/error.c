#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static const char *const status_texts[] = {
#define STATUS_TEXT(name, text) text,
    KVAD_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
};

const char *kvad_status_text(enum kvad_status status) {
    size_t i = (size_t)status;
    return i < sizeof status_texts / sizeof status_texts[0] ? status_texts[i] : "unknown status";
}

/* File names and tensor names come from outside, and a cut may go through a character: keep the
 * promise of one line of UTF-8 without control characters. */
static void make_printable(char *text) {
    for (size_t size = strlen(text); size > 0;) {
        uint32_t point;
        size_t n = kvad_utf8_decode(text, size, &point);
        if (kvad_utf8_is_control(point) || point >= KVAD_UTF8_INCOMPLETE) memset(text, '?', n);
        text += n;
        size -= n;
    }
}

enum kvad_status kvad_fail(struct kvad_error *err, enum kvad_status status, const char *format,
                           ...) {
    if (!err) return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    make_printable(err->text);
    return status;
}

enum kvad_status kvad_fail_memory(struct kvad_error *err, const char *what, size_t bytes) {
    return kvad_fail(err, KVAD_ERR_NO_MEMORY, "out of memory: %s needs %zu bytes", what, bytes);
}
