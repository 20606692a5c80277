/* Strict UTF-8: one character at a time, and a stream that yields only whole characters.
 *
 * Valid means table 3-7 of the Unicode standard: no overlong form, no surrogate, nothing above
 * U+10FFFF. Invalid bytes are cut into maximal subparts as chapter 3.9 of the standard recommends
 * ("substitution of maximal subparts"), so that E2 82 41 is one bad piece of two bytes and 'A'. */
#ifndef KVAD_BASE_UTF8_H
#define KVAD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Bytes of the byte order mark at the head of a text, 3 or 0: editors put one there to say that it
 * is UTF-8; it is no part of the text. */
size_t kvad_utf8_mark(const char *text, size_t size);

/* What kvad_utf8_decode() writes where there is no code point. */
#define KVAD_UTF8_INVALID    0xffffffffu
#define KVAD_UTF8_INCOMPLETE 0xfffffffeu

/** Read the character at text[0]; size >= 1. Returns the bytes it takes (1 to 4) and writes its
 * code point; or the length of a maximal subpart and KVAD_UTF8_INVALID; or `size` (1 to 3) and
 * KVAD_UTF8_INCOMPLETE if all the bytes left are the beginning of a character. */
size_t kvad_utf8_decode(const char *text, size_t size, uint32_t *code_point);

/** Whether a character of a text from outside would act on what is around it, not be shown:
 * controls (C0, DEL, C1), separators of lines and paragraphs, and the marks, embeddings, overrides
 * and isolates of the bidirectional algorithm (UAX 9), which show a line in another order. */
bool kvad_utf8_is_control(uint32_t code_point);

/** Bytes at the end of `text` (0 to 3) that more bytes could make a character. */
size_t kvad_utf8_incomplete_tail(const char *text, size_t size);

/* Bytes of successive tokens in, whole characters out. Zero it to begin. A beginning of a character
 * is held, whatever the next bytes are, until it is complete or known to be wrong; each wrong
 * maximal subpart becomes one U+FFFD. The output does not depend on how the bytes were cut. */
struct kvad_utf8_stream {
    unsigned char held[3];
    unsigned char n_held;
};

/* Room that kvad_utf8_stream_push() of n bytes may need: every byte, held ones too, may become a
 * U+FFFD of 3 bytes. */
#define KVAD_UTF8_STREAM_ROOM(n) (3 * ((size_t)(n) + 3))
/* Room that kvad_utf8_stream_flush() may need. */
enum { KVAD_UTF8_FLUSH_ROOM = 3 };

/** Add `size` bytes and write the characters that are certain now to `out`, which has
 * KVAD_UTF8_STREAM_ROOM(size) bytes and does not overlap `bytes`. Returns the bytes written. */
size_t kvad_utf8_stream_push(struct kvad_utf8_stream *stream, const char *bytes, size_t size,
                             char *out);
/** End of the text: a held beginning becomes one U+FFFD. Returns the bytes written, 0 or 3. */
size_t kvad_utf8_stream_flush(struct kvad_utf8_stream *stream, char *out);

#endif
