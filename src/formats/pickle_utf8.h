/* What Python's pickle calls text: UTF-8, with lone surrogates let pass. */
#ifndef KVAD_FORMATS_PICKLE_UTF8_H
#define KVAD_FORMATS_PICKLE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool kvad_pickle_is_utf8(const unsigned char *bytes, size_t size) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000}; /* shorter forms exist below */
    for (size_t i = 0; i < size;) {
        unsigned lead = bytes[i++];
        size_t more = lead < 0x80 ? 0 : lead < 0xc0 ? 4 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
        if (more > 3 || lead > 0xf4 || more > size - i) return false;
        uint32_t point = more ? lead & (0x3fu >> more) : lead;
        for (size_t end = i + more; i < end; i++) {
            if ((bytes[i] & 0xc0) != 0x80) return false;
            point = point << 6 | (bytes[i] & 0x3fu);
        }
        if (point < least[more] || point > 0x10ffff) return false;
    }
    return true;
}

#endif
