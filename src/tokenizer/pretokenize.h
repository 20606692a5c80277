/* GPT-2's pre-tokenisation: text is cut into pieces, and merges never cross a cut.
 *
 * A scanner made by hand for the regular expression of OpenAI's encoder.py
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * Letters and numbers are the Unicode categories L* and N* (Nd, Nl and No); white space is the 25
 * code points of the property White_Space. Where bytes are not UTF-8, each bad byte is a character
 * of its own and of no class, like a symbol, so that nothing is lost. No locale, no recursion, no
 * allocation; time linear in the text. */
#ifndef KVAD_TOKENIZER_PRETOKENIZE_H
#define KVAD_TOKENIZER_PRETOKENIZE_H

#include <stddef.h>
#include <stdint.h>

enum kvad_char_class {
    KVAD_CHAR_OTHER, /* symbols, marks, controls, unassigned, bad bytes */
    KVAD_CHAR_LETTER,
    KVAD_CHAR_NUMBER,
    KVAD_CHAR_SPACE
};

/** Class of a code point, or of KVAD_UTF8_INVALID and KVAD_UTF8_INCOMPLETE (OTHER). */
enum kvad_char_class kvad_char_class(uint32_t code_point);

/** Length of the piece that begins at text[0]; size >= 1 and the result is in [1, size]. What
 * follows text[size) is taken as the end of the text. */
size_t kvad_pretokenize(const char *text, size_t size);

#endif
