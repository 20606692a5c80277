/* Character vocabularies: each code point of the text is a token, as in nanoGPT's data/ folders. */
#ifndef KVAD_TOKENIZER_CHARS_H
#define KVAD_TOKENIZER_CHARS_H

#include "tokenizer/tokenizer.h"

/* A text and its id, as a file gives it. */
struct kvad_char_source {
    const char *text;
    size_t size;
    int64_t id;
};

/* `stoi` and `itos` of a file; either may be absent (n = 0). */
struct kvad_chars_source {
    const char *name;                    /* the file, for errors */
    const struct kvad_char_source *stoi; /* [n_stoi] */
    const struct kvad_char_source *itos; /* [n_itos] */
    size_t n_stoi, n_itos;
};

/** Fill a zeroed tokenizer (heap apart). Where both tables are there they must agree. Keys longer
 * than one character are special text: decoded always, encoded only with KVAD_ENCODE_SPECIAL, as
 * nanoGPT's encode goes character by character. */
enum kvad_status kvad_chars_load(struct kvad_tokenizer *t, const struct kvad_chars_source *source,
                                 struct kvad_error *err);

/** nanoGPT's meta may say "tokenization": "word": refused, since it does not say how words are
 * joined. `value` NULL: absent. */
enum kvad_status kvad_chars_check_tokenization(const char *name, const char *value,
                                               struct kvad_error *err);
/** A key of itos written as a string: decimal digits only. */
bool kvad_chars_parse_id(const char *text, size_t size, int64_t *id);

/** Encode text without special tokens; `offset` is where it begins in the caller's text.
 * KVAD_ERR_ARGUMENT names an unknown character and its byte offset. */
enum kvad_status kvad_chars_encode(const struct kvad_tokenizer *t, const char *text, size_t size,
                                   size_t offset, struct kvad_id_sink *sink,
                                   struct kvad_error *err);

#endif
