/* Added tokens: texts such as <|endoftext|> that are matched before pre-tokenisation.
 *
 * Two passes, as in the Hugging Face tokenizers library: tokens with normalized = false first, then
 * the others in what is left between them. Within a pass the leftmost match wins, and of those that
 * begin at one place the longest. Special tokens match only when the caller asks. */
#ifndef KVAD_TOKENIZER_ADDED_H
#define KVAD_TOKENIZER_ADDED_H

#include "tokenizer/vocab.h"

struct kvad_added_token {
    uint32_t id;
    uint32_t parent; /* index of the longest other token of the pass that begins this one, or NONE
                      */
    bool special;
    unsigned char pass; /* 0 or 1 */
};
#define KVAD_ADDED_NONE UINT32_MAX

/* Filled at open, then immutable. */
struct kvad_added {
    struct kvad_heap *heap;
    const struct kvad_vocab *vocab;  /* borrowed: holds the texts */
    struct kvad_added_token *tokens; /* [n], sorted by (pass, text) once finished */
    uint32_t n, capacity;
    uint32_t first_of_pass[3]; /* pass p is tokens[first_of_pass[p] .. first_of_pass[p + 1]) */
    bool begins[2][256];       /* bytes that begin a token of a pass */
    bool has_plain[2];         /* a pass has tokens that are not special */
};

/** Room for `capacity` tokens. On failure the object may be half built: deinit it. */
enum kvad_status kvad_added_init(struct kvad_added *added, struct kvad_heap *heap,
                                 const struct kvad_vocab *vocab, uint32_t capacity,
                                 struct kvad_error *err);
void kvad_added_deinit(struct kvad_added *added);
/** Take a token whose piece is in the vocabulary; no text twice; at most `capacity` times. */
void kvad_added_put(struct kvad_added *added, uint32_t id, bool special, bool normalized);
/** Sort; call once after the last put. */
void kvad_added_finish(struct kvad_added *added);

/** A token whose text another one has too, or NULL. */
const struct kvad_added_token *kvad_added_twice(const struct kvad_added *added);

/** The token with exactly this text, or NULL. */
const struct kvad_added_token *kvad_added_find(const struct kvad_added *added, const char *text,
                                               size_t size);

/** The first match of a pass in text[0..size): writes where it begins and returns it, or NULL. */
const struct kvad_added_token *kvad_added_match(const struct kvad_added *added, unsigned pass,
                                                bool with_special, const char *text, size_t size,
                                                size_t *begin);

#endif
