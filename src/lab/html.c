#include "lab/html.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void kvad_html_init(struct kvad_html *html, struct kvad_heap *heap) {
    *html = (struct kvad_html){.heap = heap};
}

void kvad_html_deinit(struct kvad_html *html) {
    if (html->heap) kvad_free(html->heap, html->bytes, html->capacity);
    *html = (struct kvad_html){0};
}

static bool make_room(struct kvad_html *html, size_t size) {
    size_t wanted, capacity = html->capacity ? html->capacity : 4096;
    if (!kvad_add_size(html->size, size, &wanted) || !kvad_add_size(wanted, 1, &wanted))
        return false;
    while (capacity < wanted)
        if (!kvad_mul_size(capacity, 2, &capacity)) return false;
    if (capacity == html->capacity) return true;
    char *grown = kvad_resize(html->heap, html->bytes, html->capacity, capacity);
    if (!grown) return false;
    html->bytes = grown;
    html->capacity = capacity;
    return true;
}

void kvad_html_bytes(struct kvad_html *html, const char *bytes, size_t size) {
    if (html->failed || !make_room(html, size)) {
        html->failed = true;
        return;
    }
    if (size) memcpy(html->bytes + html->size, bytes, size);
    html->size += size;
    html->bytes[html->size] = 0;
}

void kvad_html_raw(struct kvad_html *html, const char *markup) {
    kvad_html_bytes(html, markup, strlen(markup));
}

/* What stands for a character; NULL: itself. */
static const char *replacement(uint32_t c) {
    static const char none[] = "\xEF\xBF\xBD";
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    case '\t':
    case '\n': return NULL;
    default: break;
    }
    bool is_invalid = c == KVAD_UTF8_INVALID || c == KVAD_UTF8_INCOMPLETE;
    bool is_no_character = (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF);
    return kvad_utf8_is_control(c) || is_invalid || is_no_character ? none : NULL;
}

void kvad_html_text(struct kvad_html *html, const char *text) {
    size_t size = strlen(text), plain = 0;
    for (size_t i = 0; i < size;) {
        uint32_t c;
        size_t used = kvad_utf8_decode(text + i, size - i, &c);
        const char *instead = replacement(c);
        if (instead) {
            kvad_html_bytes(html, text + plain, i - plain);
            kvad_html_raw(html, instead);
            plain = i + used;
        }
        i += used;
    }
    kvad_html_bytes(html, text + plain, size - plain);
}

/* One conversion other than %s: `spec` is the whole of it, with its percent sign. */
static void add_number(struct kvad_html *html, const char *spec, size_t size, va_list *arguments) {
    char form[16], out[64];
    int n = -1;
    if (size >= sizeof form) return;
    memcpy(form, spec, size);
    form[size] = 0;
    /* The form is a piece of a literal that the compiler has checked as a whole. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    switch (form[size - 1]) {
    case 'd': n = snprintf(out, sizeof out, form, va_arg(*arguments, int)); break;
    case 'u':
        n = form[size - 2] == 'z' ? snprintf(out, sizeof out, form, va_arg(*arguments, size_t))
                                  : snprintf(out, sizeof out, form, va_arg(*arguments, unsigned));
        break;
    case 'f':
    case 'g': n = snprintf(out, sizeof out, form, va_arg(*arguments, double)); break;
    default: break;
    }
#pragma GCC diagnostic pop
    if (n > 0) kvad_html_bytes(html, out, kvad_min_size((size_t)n, sizeof out - 1));
}

void kvad_html_add(struct kvad_html *html, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    while (*format) {
        size_t plain = strcspn(format, "%");
        kvad_html_bytes(html, format, plain);
        format += plain;
        if (!*format) break;
        size_t size = 1 + strcspn(format + 1, "sdufg%") + 1;
        if (format[size - 1] == 's')
            kvad_html_text(html, va_arg(arguments, const char *));
        else if (format[size - 1] == '%')
            kvad_html_raw(html, "%");
        else
            add_number(html, format, size, &arguments);
        format += size;
    }
    va_end(arguments);
}
