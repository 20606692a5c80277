/* GPT-2's way of writing bytes as printable characters in vocabulary files.
 *
 * The bytes 33..126, 161..172 and 174..255 stand for the code points of the same number; the other
 * 68, in increasing order, for U+0100, U+0101, ... (space is U+0120, line feed U+010A). From
 * OpenAI's encoder.py, bytes_to_unicode(). */
#ifndef KVAD_TOKENIZER_BYTE_ALPHABET_H
#define KVAD_TOKENIZER_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>

/** Turn a token of a vocabulary file into the bytes it stands for. `bytes` has room for `size`
 * bytes; *n_bytes <= size. False if a character is not in the alphabet or is not UTF-8 (nothing
 * useful is in `bytes` then). */
bool kvad_alphabet_to_bytes(const char *text, size_t size, char *bytes, size_t *n_bytes);

#endif
