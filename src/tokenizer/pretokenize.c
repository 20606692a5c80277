#include "tokenizer/pretokenize.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

static enum kvad_char_class ascii_class(uint32_t c) {
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return KVAD_CHAR_LETTER;
    if (c >= '0' && c <= '9') return KVAD_CHAR_NUMBER;
    return c == ' ' || (c >= '\t' && c <= '\r') ? KVAD_CHAR_SPACE : KVAD_CHAR_OTHER;
}

/* The white space above ASCII. Not U+001C..001F, U+180E, U+200B or U+FEFF, which some libraries
 * count. */
static int is_wide_space(uint32_t c) {
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

enum kvad_char_class kvad_char_class(uint32_t code_point) {
    if (code_point < 0x80) return ascii_class(code_point);
    if (is_wide_space(code_point)) return KVAD_CHAR_SPACE;
    if (code_point > 0x10ffff) return KVAD_CHAR_OTHER;
    switch (utf8proc_category((utf8proc_int32_t)code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return KVAD_CHAR_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return KVAD_CHAR_NUMBER;
    default: return KVAD_CHAR_OTHER;
    }
}

static enum kvad_char_class read_class(const char *text, size_t size, size_t *length) {
    uint32_t code_point;
    *length = kvad_utf8_decode(text, size, &code_point);
    return kvad_char_class(code_point);
}

/* Length of 's 't 're 've 'm 'll 'd at the beginning of the text, or 0. Lower case only. */
static size_t contraction(const char *text, size_t size) {
    if (size < 2 || text[0] != '\'') return 0;
    if (strchr("stmd", text[1]) && text[1]) return 2;
    if (size < 3) return 0;
    if ((text[1] == 'r' || text[1] == 'v') && text[2] == 'e') return 3;
    return text[1] == 'l' && text[2] == 'l' ? 3 : 0;
}

/* End of the run of one class that begins at `at`; *last is where its last character begins. */
static size_t run_end(const char *text, size_t size, size_t at, enum kvad_char_class class,
                      size_t *last) {
    size_t length;
    *last = at;
    while (at < size && read_class(text + at, size - at, &length) == class) {
        *last = at;
        at += length;
    }
    return at;
}

size_t kvad_pretokenize(const char *text, size_t size) {
    size_t length = contraction(text, size), last;
    if (length) return length;
    enum kvad_char_class class = read_class(text, size, &length);
    if (class != KVAD_CHAR_SPACE) return run_end(text, size, 0, class, &last);
    if (text[0] == ' ' && size > 1) {
        class = read_class(text + 1, size - 1, &length);
        if (class != KVAD_CHAR_SPACE) return run_end(text, size, 1, class, &last);
    }
    /* \s+(?!\S) gives the last character of a run back if something follows: it may be the space of
     * the next word. A run of one character has nothing to give back: that is the final \s+. */
    size_t end = run_end(text, size, 0, KVAD_CHAR_SPACE, &last);
    return end == size || last == 0 ? end : last;
}
