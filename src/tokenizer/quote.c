#include "tokenizer/quote.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

struct kvad_quote kvad_quote(const char *bytes, size_t size) {
    struct kvad_quote quote = {"'"};
    size_t n = 1, room = sizeof quote.text - sizeof "...'";
    size_t at = 0;
    while (at < size) {
        uint32_t code_point;
        size_t used = kvad_utf8_decode(bytes + at, size - at, &code_point);
        int escape = kvad_utf8_is_control(code_point) || code_point > 0x10ffff;
        if (n + (escape ? 4 * used : used) > room) break;
        for (size_t i = 0; i < used && escape; i++)
            n += (size_t)snprintf(quote.text + n, 5, "\\x%02X", (unsigned char)bytes[at + i]);
        if (!escape) memcpy(quote.text + n, bytes + at, used);
        n += escape ? 0 : used;
        at += used;
    }
    snprintf(quote.text + n, sizeof quote.text - n, at < size ? "...'" : "'");
    return quote;
}
