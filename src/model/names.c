#include "model/names.h"

#include <stdio.h>
#include <string.h>

size_t kvad_name_prefix(const char *name) {
    static const char *const wrappers[] = {"transformer.", "module.", "_orig_mod.", "model.",
                                           "_fsdp_wrapped_module."};
    size_t length = 0;
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers;) {
        size_t n = strlen(wrappers[i]);
        if (strncmp(name + length, wrappers[i], n) == 0) {
            length += n;
            i = 0; /* any order, any depth */
        } else {
            i++;
        }
    }
    return length;
}

/* Reads a plain decimal at *text and moves behind it. */
static bool read_number(const char **text, uint32_t *number) {
    const char *c = *text;
    uint32_t value = 0;
    size_t n_digits = 0;
    for (; *c >= '0' && *c <= '9'; c++, n_digits++) {
        if (n_digits == 9) return false;
        value = value * 10 + (uint32_t)(*c - '0');
    }
    /* A leading zero would give one layer two names. */
    if (n_digits == 0 || (n_digits > 1 && **text == '0')) return false;
    *text = c;
    *number = value;
    return true;
}

bool kvad_name_match(const char *pattern, const char *name, uint32_t *layer, uint32_t *head) {
    uint32_t l = 0, h = 0;
    for (; *pattern; pattern++) {
        if (*pattern == '*' || *pattern == '#') {
            if (!read_number(&name, *pattern == '*' ? &l : &h)) return false;
        } else if (*name++ != *pattern) {
            return false;
        }
    }
    if (*name) return false;
    *layer = l;
    *head = h;
    return true;
}

const char *kvad_name_expand(const char *pattern, uint32_t layer, uint32_t head, char *text,
                             size_t size) {
    size_t used = 0;
    if (size == 0) return text;
    text[0] = 0;
    for (; *pattern && used + 1 < size; pattern++) {
        if (*pattern == '*' || *pattern == '#') {
            int n = snprintf(text + used, size - used, "%u", *pattern == '*' ? layer : head);
            used = used + (size_t)n < size ? used + (size_t)n : size - 1;
        } else {
            text[used++] = *pattern;
            text[used] = 0;
        }
    }
    return text;
}
