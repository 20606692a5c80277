#include "tokenizer/byte_alphabet.h"

#include "base/utf8.h"

static bool stands_for_itself(uint32_t code_point) {
    return (code_point >= 33 && code_point <= 126) || (code_point >= 161 && code_point <= 172) ||
           (code_point >= 174 && code_point <= 255);
}

/* The byte of U+0100 + i: 0..32, then 127..160, then 173. */
static bool moved_byte(uint32_t i, unsigned char *byte) {
    if (i > 67) return false;
    *byte = (unsigned char)(i <= 32 ? i : i <= 66 ? i - 33 + 127 : 173);
    return true;
}

bool kvad_alphabet_to_bytes(const char *text, size_t size, char *bytes, size_t *n_bytes) {
    size_t n = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code_point;
        unsigned char byte;
        at += kvad_utf8_decode(text + at, size - at, &code_point);
        if (stands_for_itself(code_point))
            byte = (unsigned char)code_point;
        else if (code_point < 0x100 || !moved_byte(code_point - 0x100, &byte))
            return false;
        bytes[n++] = (char)byte;
    }
    *n_bytes = n;
    return true;
}
