#include "base/utf8.h"

#include <string.h>

/* What may follow a lead byte: how many bytes, and the range of the first of them (the others are
 * 80..BF). The narrowed ranges keep out overlong forms, surrogates and code points > 10FFFF. */
struct lead {
    unsigned char n_more, low, high, bits;
};

static struct lead lead_of(unsigned char byte) {
    if (byte < 0xc2 || byte > 0xf4) return (struct lead){0, 0, 0, 0};
    if (byte < 0xe0) return (struct lead){1, 0x80, 0xbf, byte & 0x1f};
    if (byte < 0xf0)
        return (struct lead){2, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf,
                             byte & 0x0f};
    return (struct lead){3, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf, byte & 0x07};
}

size_t kvad_utf8_mark(const char *text, size_t size) {
    return size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

bool kvad_utf8_is_control(uint32_t c) {
    bool turns = c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
                 (c >= 0x2066 && c <= 0x2069);
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || turns;
}

size_t kvad_utf8_decode(const char *text, size_t size, uint32_t *code_point) {
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] < 0x80) {
        *code_point = b[0];
        return 1;
    }
    struct lead lead = lead_of(b[0]);
    uint32_t value = lead.bits;
    *code_point = KVAD_UTF8_INVALID;
    if (lead.n_more == 0) return 1;
    for (size_t i = 1; i <= lead.n_more; i++) {
        if (i == size) {
            *code_point = KVAD_UTF8_INCOMPLETE;
            return i;
        }
        if (b[i] < lead.low || b[i] > lead.high) return i;
        value = value << 6 | (b[i] & 0x3fu);
        lead.low = 0x80;
        lead.high = 0xbf;
    }
    *code_point = value;
    return lead.n_more + 1u;
}

size_t kvad_utf8_incomplete_tail(const char *text, size_t size) {
    /* Only the last lead byte can begin an incomplete character, and it is at most 3 bytes back. */
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char byte = (unsigned char)text[size - back];
        if ((byte & 0xc0) == 0x80) continue;
        uint32_t code_point;
        kvad_utf8_decode(text + size - back, back, &code_point);
        return code_point == KVAD_UTF8_INCOMPLETE ? back : 0;
    }
    return 0;
}

/* Write what decoding gave: the bytes themselves, or U+FFFD. Returns the bytes written. */
static size_t emit(char *out, const char *bytes, size_t size, uint32_t code_point) {
    if (code_point == KVAD_UTF8_INVALID) {
        memcpy(out, "\xef\xbf\xbd", 3);
        return 3;
    }
    memcpy(out, bytes, size);
    return size;
}

/* Go on with the held beginning. Returns how many of `bytes` were used. */
static size_t finish_held(struct kvad_utf8_stream *stream, const char *bytes, size_t size,
                          char *out, size_t *n_out) {
    char joined[4];
    size_t n_held = stream->n_held, n_new = size < 4 - n_held ? size : 4 - n_held;
    memcpy(joined, stream->held, n_held);
    memcpy(joined + n_held, bytes, n_new);
    uint32_t code_point;
    size_t used = kvad_utf8_decode(joined, n_held + n_new, &code_point);
    if (code_point == KVAD_UTF8_INCOMPLETE) {
        memcpy(stream->held, joined, used);
        stream->n_held = (unsigned char)used;
        return n_new;
    }
    *n_out += emit(out + *n_out, joined, used, code_point);
    stream->n_held = 0;
    return used - n_held; /* the held bytes are a valid beginning, so used >= n_held */
}

size_t kvad_utf8_stream_push(struct kvad_utf8_stream *stream, const char *bytes, size_t size,
                             char *out) {
    size_t at = 0, n_out = 0;
    if (stream->n_held && size) at = finish_held(stream, bytes, size, out, &n_out);
    while (at < size) {
        uint32_t code_point;
        size_t used = kvad_utf8_decode(bytes + at, size - at, &code_point);
        if (code_point == KVAD_UTF8_INCOMPLETE) {
            memcpy(stream->held, bytes + at, used);
            stream->n_held = (unsigned char)used;
            break;
        }
        n_out += emit(out + n_out, bytes + at, used, code_point);
        at += used;
    }
    return n_out;
}

size_t kvad_utf8_stream_flush(struct kvad_utf8_stream *stream, char *out) {
    if (!stream->n_held) return 0;
    stream->n_held = 0;
    return emit(out, NULL, 0, KVAD_UTF8_INVALID);
}
